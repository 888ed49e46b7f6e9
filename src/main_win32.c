/* main_win32.c - where the program begins on Windows: arguments in UTF-8, and no box on the screen that waits for a click.
 *
 * The wide arguments are what the user wrote; those of main would have lost what is not in the system's code page. */
#include <windows.h>

#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>

#include "main.h"

int wmain(int argc, wchar_t **wide); /* the C library calls it in the place of main */

enum { EXIT_NO_ARGUMENTS = 1 };

/* In memory that stays. NULL: none, or it is no Unicode. */
static char *utf8_of(const wchar_t *wide)
{
    const int bytes = WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, -1, NULL, 0, NULL, NULL);
    char *out = bytes > 0 ? malloc((size_t)bytes) : NULL;
    if (out != NULL) (void)WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, bytes, NULL, NULL);
    return out;
}

int wmain(int argc, wchar_t **wide)
{
    char **argv = calloc((size_t)argc + 1, sizeof *argv);

    (void)SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
    (void)_set_error_mode(_OUT_TO_STDERR); /* assertions */
    (void)SetConsoleOutputCP(CP_UTF8);     /* fails without a console */
    (void)_setmode(_fileno(stdout), _O_BINARY);
    (void)_setmode(_fileno(stderr), _O_BINARY);
    (void)setvbuf(stderr, NULL, _IONBF, 0); /* it is not so with every C library */

    for (int i = 0; argv != NULL && i < argc; i++)
        if ((argv[i] = utf8_of(wide[i])) == NULL) {
            fprintf(stderr, "luaserve: argument %d is no Unicode text, or there is no memory for it\n", i);
            return EXIT_NO_ARGUMENTS;
        }
    if (argv == NULL) {
        fprintf(stderr, "luaserve: no memory for the arguments\n");
        return EXIT_NO_ARGUMENTS;
    }
    return ls_command_line(argc, argv);
}
