/* rlimit_posix.c - see rlimit.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/os/rlimit.h"

#include <sys/resource.h>

uint32_t ls_descriptors_raise(uint32_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return wanted;
    if (limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max) {
        struct rlimit more = limit;
        more.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
    }
    return limit.rlim_cur > UINT32_MAX ? UINT32_MAX : (uint32_t)limit.rlim_cur;
}
