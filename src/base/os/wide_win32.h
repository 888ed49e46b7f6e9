/* wide_win32.h - text in UTF-8 as text in UTF-16, for the calls of Windows. For *_win32.c only. */
#ifndef LS_BASE_WIDE_WIN32_H
#define LS_BASE_WIDE_WIN32_H

#include <wchar.h>

/* The caller frees the result. NULL with errno set: ENOMEM, or EINVAL for invalid UTF-8. */
wchar_t *ls_wide_of(const char *text);

#endif
