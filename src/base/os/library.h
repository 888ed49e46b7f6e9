/* library.h - a shared library of the system that is loaded when it is first needed, and never unloaded. */
#ifndef LS_BASE_LIBRARY_H
#define LS_BASE_LIBRARY_H

#include <stddef.h>

/* Load the library `name`, such as "libpq.so.5", and store the addresses of its functions: that of names[n] in to[n],
 * `count` of them. NULL, or why it cannot be used: static text, or text of the system that is valid until the next
 * call of this thread. Any thread. */
const char *ls_library_load(const char *name, const char *const *names, void **to, size_t count);

#endif
