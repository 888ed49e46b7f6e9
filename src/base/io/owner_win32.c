/* owner_win32.c - Windows has no numbers of users and groups. */
#include "base/io/owner.h"

#include "base/err.h"

int ls_user_id(const char *name, uint32_t *out)
{
    return LS_ENOTSUP;
}

int ls_group_id(const char *name, uint32_t *out)
{
    return LS_ENOTSUP;
}

bool ls_user_is_self(uint32_t user)
{
    return false;
}
