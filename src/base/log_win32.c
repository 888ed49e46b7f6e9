/* log_win32.c - the stderr sink: one WriteFile per line, under a lock that separates the lines of several threads. */
#include <windows.h>

#include <io.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log_stderr.h"

enum { STDERR_FD = 2, LINE_BYTES = 17 * 1024 };

static SRWLOCK writing = SRWLOCK_INIT;

static size_t write_head(char *to, size_t room, int level)
{
    SYSTEMTIME t;
    GetSystemTime(&t);
    const int n = snprintf(to, room, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ %s ", t.wYear, t.wMonth, t.wDay, t.wHour,
                           t.wMinute, t.wSecond, t.wMilliseconds, ls_log_level_name((enum ls_log_level)level));
    return n > 0 ? (size_t)n : 0;
}

/* Bypasses the C library, which would expand the newline to two bytes. */
static void write_all(const char *bytes, size_t len)
{
    const HANDLE to = (HANDLE)_get_osfhandle(STDERR_FD);
    DWORD written;
    while (len > 0 && WriteFile(to, bytes, (DWORD)len, &written, NULL) && written > 0) {
        bytes += written;
        len -= written;
    }
}

void ls_log_stderr(int level, const char *line, size_t len, void *user)
{
    char line_out[LINE_BYTES]; /* head, text, newline */
    (void)user;
    size_t n = write_head(line_out, sizeof line_out, level);
    if (len > sizeof line_out - n - 1) len = sizeof line_out - n - 1; /* never true: log.c cuts at 16 KiB */
    memcpy(line_out + n, line, len);
    n += len;
    line_out[n++] = '\n';
    AcquireSRWLockExclusive(&writing);
    write_all(line_out, n);
    ReleaseSRWLockExclusive(&writing);
}
