/* owner_posix.c - see owner.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/io/owner.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"

enum { ENTRY_BYTES_MAX = 1 << 20 }; /* a group with many members */

static int look_up(const char *name, bool group, uint32_t *out)
{
    for (size_t bytes = 1024; bytes <= ENTRY_BYTES_MAX; bytes *= 4) {
        struct passwd user, *found_user = NULL;
        struct group members, *found_group = NULL;
        char *buffer = malloc(bytes);
        if (buffer == NULL) return LS_ENOMEM;
        const int error = group ? getgrnam_r(name, &members, buffer, bytes, &found_group)
                                : getpwnam_r(name, &user, buffer, bytes, &found_user);
        if (found_user != NULL) *out = user.pw_uid;
        if (found_group != NULL) *out = members.gr_gid;
        free(buffer);
        if (found_user != NULL || found_group != NULL) return LS_OK;
        if (error != ERANGE) return LS_ENOENT; /* getpwnam(3): systems report an unknown name in several ways */
    }
    return LS_ELIMIT;
}

int ls_user_id(const char *name, uint32_t *out)
{
    return look_up(name, false, out);
}

int ls_group_id(const char *name, uint32_t *out)
{
    return look_up(name, true, out);
}

bool ls_user_is_self(uint32_t user)
{
    return user == geteuid();
}
