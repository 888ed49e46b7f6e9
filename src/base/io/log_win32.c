/* log_win32.c - see log_stderr.h: Windows has no journal. */
#include "base/io/log_stderr.h"

bool ls_log_journal(int level, const char *line, size_t len)
{
    return false;
}
