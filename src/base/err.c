/* err.c - the table of err.h as look-ups. Pure; any thread. */
#include "base/err.h"

#include <errno.h>

/* Windows lacks these errors; an errno value is never negative. */
#ifndef ESHUTDOWN
#define ESHUTDOWN (-1)
#endif
#ifndef EDQUOT
#define EDQUOT (-2)
#endif

const char *ls_err_name(int err)
{
    switch (err) {
    case LS_OK: return "OK";
#define X(name, number, text) \
    case LS_##name: return #name;
        LS_ERRORS(X)
#undef X
    default: return "ESYS";
    }
}

const char *ls_err_text(int err)
{
    switch (err) {
    case LS_OK: return "ok";
#define X(name, number, text) \
    case LS_##name: return text;
        LS_ERRORS(X)
#undef X
    default: return "system error";
    }
}

int ls_err_from_errno(int system_errno)
{
    switch (system_errno != EWOULDBLOCK ? system_errno : EAGAIN) { /* the same number on most systems */
    case 0: return LS_OK;
    case ENOMEM:
    case ENOBUFS: return LS_ENOMEM;
    case EINVAL:
    case EBADF:
    case EFAULT:
    case ENOTSOCK: return LS_EINVAL;
    case ECANCELED: return LS_ECANCELED;
    case ETIMEDOUT: return LS_ETIMEDOUT;
    case ENOTCONN:
    case ESHUTDOWN: return LS_ECLOSED;
    case ECONNRESET:
    case ECONNABORTED: return LS_ERESET;
    case EPIPE: return LS_EPIPE;
    case ECONNREFUSED: return LS_EREFUSED;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN: return LS_EUNREACH;
    case EADDRINUSE: return LS_EADDRINUSE;
    case EADDRNOTAVAIL: return LS_EADDRNOTAVAIL;
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY: return LS_EACCES;
    case EMFILE:
    case ENFILE: return LS_EMFILE;
    case ENAMETOOLONG:
    case ELOOP:
    case EFBIG:
    case EOVERFLOW: return LS_ELIMIT;
    case EPROTO: return LS_EPROTO;
    case EPROTOTYPE: return LS_EPROTOTYPE;
    case ENOENT:
    case ENOTDIR: return LS_ENOENT;
    case EISDIR: return LS_EISDIR;
    case ENOSPC:
    case EDQUOT: return LS_ENOSPC;
    case EIO: return LS_EIO;
    case EEXIST: return LS_EEXIST;
    case ENOTEMPTY: return LS_ENOTEMPTY;
    case EXDEV: return LS_EXDEV;
    case ENOSYS:
    case ENXIO: /* open(2) of a socket, or of a device without a driver */
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT: return LS_ENOTSUP;
    case EBUSY: return LS_EBUSY;
    case EAGAIN:
    case EINPROGRESS:
    case EALREADY: return LS_EAGAIN;
    case EMSGSIZE: return LS_EMSGSIZE;
    default: return LS_ESYS;
    }
}
