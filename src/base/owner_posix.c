/* owner_posix.c - see owner.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/owner.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"

enum { ENTRY_BYTES_MAX = 1 << 20 }; /* a group with many members */

int ls_user_id(const char *name, uint32_t *out)
{
    for (size_t bytes = 1024; bytes <= ENTRY_BYTES_MAX; bytes *= 4) {
        struct passwd entry, *found = NULL;
        char *buffer = malloc(bytes);
        if (buffer == NULL) return LS_ENOMEM;
        const int error = getpwnam_r(name, &entry, buffer, bytes, &found);
        if (found != NULL) *out = entry.pw_uid;
        free(buffer);
        if (found != NULL) return LS_OK;
        if (error != ERANGE) return LS_ENOENT; /* getpwnam(3): systems report an unknown name in several ways */
    }
    return LS_ELIMIT;
}

int ls_group_id(const char *name, uint32_t *out)
{
    for (size_t bytes = 1024; bytes <= ENTRY_BYTES_MAX; bytes *= 4) {
        struct group entry, *found = NULL;
        char *buffer = malloc(bytes);
        if (buffer == NULL) return LS_ENOMEM;
        const int error = getgrnam_r(name, &entry, buffer, bytes, &found);
        if (found != NULL) *out = entry.gr_gid;
        free(buffer);
        if (found != NULL) return LS_OK;
        if (error != ERANGE) return LS_ENOENT;
    }
    return LS_ELIMIT;
}

bool ls_user_is_self(uint32_t user)
{
    return user == geteuid();
}
