/* binary_win32.c - what a test program reads and writes are bytes: no line feed becomes two. */
#include <fcntl.h>
#include <io.h>

__attribute__((constructor)) static void use_bytes(void)
{
    for (int fd = 0; fd <= 2; fd++) (void)_setmode(fd, _O_BINARY);
}
