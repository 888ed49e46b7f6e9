/* line_log_win32.c - the file of a line log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/io/fopen.h"
#include "base/io/line_log.h"

int ls_line_file_open(ls_line_file *file)
{
    if (strcmp(file->name, "syslog") == 0) return LS_ENOTSUP;
    FILE *stream = ls_fopen(file->name, "ab");
    if (stream == NULL) return ls_err_from_errno(errno);
    (void)setvbuf(stream, NULL, _IONBF, 0);
    file->stream = stream;
    return LS_OK;
}

void ls_line_file_close(ls_line_file *file)
{
    if (file->stream != NULL) (void)fclose(file->stream);
    file->stream = NULL;
}

int64_t ls_line_file_write(ls_line_file *file, const char *lines, size_t len)
{
    const size_t n = fwrite(lines, 1, len, file->stream);
    if (n > 0) return (int64_t)n;
    const int error = errno;
    clearerr(file->stream);
    return error == ENOSPC ? LS_ENOSPC : LS_ESYS;
}
