/* err_posix.c - see err.h: the numbers of the system are those of errno. */
#include "base/err.h"

int ls_err_from_system(int number)
{
    return ls_err_from_errno(number);
}
