/* owner.h - the numbers of users and groups. owner_posix.c or owner_win32.c implements it. */
#ifndef LS_BASE_OWNER_H
#define LS_BASE_OWNER_H

#include <stdbool.h>
#include <stdint.h>

/* LS_OK; LS_ENOENT: unknown name; LS_ENOTSUP: the system has no such numbers; another error of the database. */
int ls_user_id(const char *name, uint32_t *out);
int ls_group_id(const char *name, uint32_t *out);

bool ls_user_is_self(uint32_t user); /* the effective user of this process */

#endif
