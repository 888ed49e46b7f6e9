/* binary_win32.c - makes the standard streams of a test program binary: a line feed stays one byte. */
#include <fcntl.h>
#include <io.h>

__attribute__((constructor)) static void use_bytes(void)
{
    for (int fd = 0; fd <= 2; fd++) (void)_setmode(fd, _O_BINARY);
}
