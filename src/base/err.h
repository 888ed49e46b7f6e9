/* err.h - the table of error codes: number, name, text.
 *
 * A function that can fail returns LS_OK (0), a positive count or state, or a negative LS_E* code. Lua receives the
 * same code as the third result of `nil, message, code` (the name without its LS_ prefix). */
#ifndef LS_BASE_ERR_H
#define LS_BASE_ERR_H

#define LS_ERRORS(X)                                                   \
    X(OK, 0, "ok")                                                     \
    X(ESYS, -1, "system error")                                        \
    X(ENOMEM, -2, "out of memory")                                     \
    X(EINVAL, -3, "invalid argument")                                  \
    X(ECANCELED, -4, "operation cancelled")                            \
    X(ETIMEDOUT, -5, "timeout")                                        \
    X(ECLOSED, -6, "closed")                                           \
    X(ERESET, -7, "connection reset by the peer")                      \
    X(EPIPE, -8, "the peer no longer reads")                           \
    X(EREFUSED, -9, "connection refused")                              \
    X(EUNREACH, -10, "no route to the host")                           \
    X(EADDRINUSE, -11, "address in use")                               \
    X(EADDRNOTAVAIL, -12, "address not available on this machine")     \
    X(EACCES, -13, "permission denied")                                \
    X(EMFILE, -14, "too many open descriptors")                        \
    X(ELIMIT, -15, "limit reached")                                    \
    X(EPROTO, -16, "protocol error")                                   \
    X(ENOENT, -17, "not found")                                        \
    X(EEXIST, -18, "already exists")                                   \
    X(ENOTSUP, -19, "not supported here")                              \
    X(EBUSY, -20, "busy")                                              \
    X(EAGAIN, -21, "would block")                                      \
    X(ESCRIPT, -22, "script error")                                    \
    X(EMSGSIZE, -23, "message too long")                               \
    X(EISDIR, -24, "is a directory")                                   \
    X(ENOSPC, -25, "no space left on the device")                      \
    X(EIO, -26, "I/O error")                                           \
    X(EPROTOTYPE, -27, "a datagram or seqpacket socket has this path") \
    X(ETRUNCATED, -28, "the stream was cut off before its end")        \
    X(ECERT, -29, "the certificate is not accepted")                   \
    X(ECHANGED, -30, "the file was changed while it was sent")

enum ls_err {
#define X(name, number, text) LS_##name = (number),
    LS_ERRORS(X)
#undef X
};

/* "ENOMEM" for LS_ENOMEM; "ESYS" for a number outside the table. Static text. */
const char *ls_err_name(int err);

/* One line of text without a full stop. Static text. */
const char *ls_err_text(int err);

/* The code for an errno value (errno(3)); LS_ESYS for a value outside the table. */
int ls_err_from_errno(int system_errno);

#endif
