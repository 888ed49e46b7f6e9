/* err.h - look-ups in the table of error codes, LS_ERRORS in luaserve.h.
 *
 * A function that can fail returns LS_OK (0), a positive count or state, or a negative LS_E* code. Lua receives the
 * same code as the third result of `nil, message, code` (the name without its LS_ prefix). */
#ifndef LS_BASE_ERR_H
#define LS_BASE_ERR_H

#include "luaserve.h" /* enum ls_error, with the names and texts in LS_ERRORS */

/* "ENOMEM" for LS_ENOMEM; "ESYS" for a number outside the table. Static text. */
const char *ls_err_name(int err);

/* One line of text without a full stop. Static text. */
const char *ls_err_text(int err);

/* The code for an errno value (errno(3)); LS_ESYS for a value outside the table. */
int ls_err_from_errno(int system_errno);
/* The same for the number that the system's own functions give: that of GetLastError on Windows, elsewhere an
 * errno. */
int ls_err_from_system(int number);

#endif
