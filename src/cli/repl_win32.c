/* repl_win32.c - see repl.h. Unix sockets exist since Windows 10 1803. The console edits lines itself. */
#include "cli/repl.h"

#include <conio.h>
#include <winsock2.h>

#include <afunix.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "base/os/wide_win32.h"
#include "cli/main_win32.h"

static HANDLE interrupted; /* an event: Ctrl-C was pressed; NULL: Ctrl-C ends the program */

/* ---- Ctrl-C ----------------------------------------------------------------------------------------------------- */

static BOOL WINAPI on_console_event(DWORD event)
{
    return event == CTRL_C_EVENT && SetEvent(interrupted);
}

void ls_repl_catch_interrupts(void)
{
    interrupted = CreateEventW(NULL, FALSE, FALSE, NULL);
    if (interrupted != NULL) (void)SetConsoleCtrlHandler(on_console_event, TRUE);
}

/* 1: `other` is signalled; LS_REPL_INTERRUPTED: Ctrl-C. */
static int wait_for(HANDLE other)
{
    const HANDLE both[2] = {other, interrupted};
    return WaitForMultipleObjects(interrupted != NULL ? 2 : 1, both, FALSE, INFINITE) == WAIT_OBJECT_0 + 1
               ? LS_REPL_INTERRUPTED
               : 1;
}

int ls_repl_wait_input(void)
{
    return wait_for(GetStdHandle(STD_INPUT_HANDLE));
}

int ls_repl_key(int ms)
{
    const HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
    if (WaitForSingleObject(input, (DWORD)ms) != WAIT_OBJECT_0) return 0;
    if (_kbhit()) return _getch() & 255;
    (void)FlushConsoleInputBuffer(input); /* an event that is no key */
    return 0;
}

int ls_repl_is_terminal(void)
{
    return _isatty(_fileno(stdin)) && _isatty(_fileno(stdout));
}

/* ---- the connection --------------------------------------------------------------------------------------------- */

int ls_repl_connect(const char *path, intptr_t *out, char *why, size_t why_bytes)
{
    WSADATA data;
    SOCKADDR_UN to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path) {
        snprintf(why, why_bytes, "the path is longer than %zu bytes", sizeof to.sun_path - 1);
        return -1;
    }
    memcpy(to.sun_path, path, strlen(path) + 1);
    (void)WSAStartup(MAKEWORD(2, 2), &data);
    const SOCKET fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd == INVALID_SOCKET || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        const int error = WSAGetLastError();
        if (error == WSAEAFNOSUPPORT)
            snprintf(why, why_bytes, "this version of Windows has no Unix sockets");
        else
            (void)ls_main_reason((unsigned long)error, why, why_bytes);
        if (fd != INVALID_SOCKET) closesocket(fd);
        return -1;
    }
    *out = (intptr_t)fd;
    return 0;
}

int ls_repl_write(intptr_t link, const void *bytes, size_t n)
{
    const char *from = bytes;
    while (n > 0) {
        const int sent = send((SOCKET)link, from, n > 65536 ? 65536 : (int)n, 0);
        if (sent < 0) return -1;
        from += sent;
        n -= (size_t)sent;
    }
    return 0;
}

long ls_repl_read(intptr_t link, void *to, size_t room)
{
    const HANDLE readable = WSACreateEvent();
    u_long off = 0;
    (void)WSAEventSelect((SOCKET)link, readable, FD_READ | FD_CLOSE);
    const int waited = wait_for(readable);
    (void)WSAEventSelect((SOCKET)link, NULL, 0);
    (void)ioctlsocket((SOCKET)link, (long)FIONBIO, &off); /* WSAEventSelect has made it non-blocking */
    WSACloseEvent(readable);
    if (waited == LS_REPL_INTERRUPTED) return LS_REPL_INTERRUPTED;
    const int got = recv((SOCKET)link, to, room > 65536 ? 65536 : (int)room, 0);
    return got < 0 ? 0 : got;
}

void ls_repl_disconnect(intptr_t link)
{
    closesocket((SOCKET)link);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

int ls_repl_private_path(char *path, size_t path_bytes, char *why, size_t why_bytes)
{
    wchar_t folder[MAX_PATH + 1];
    const DWORD length = GetTempPathW(MAX_PATH + 1, folder); /* that of the user */
    char *utf8 = length > 0 && length <= MAX_PATH ? ls_main_utf8(folder) : NULL;
    const int bytes = utf8 != NULL ? snprintf(path, path_bytes, "%sluaserve-%lu", utf8, GetCurrentProcessId()) : -1;
    free(utf8);
    if (bytes < 0 || (size_t)bytes >= path_bytes) {
        snprintf(why, why_bytes, "the path of the temporary folder is too long");
        return -1;
    }
    return 0;
}

void ls_repl_private_remove(char *path)
{
    wchar_t *wide = ls_wide_of(path);
    if (wide != NULL) (void)DeleteFileW(wide);
    free(wide);
}

void ls_repl_history_path(char *path, size_t path_bytes)
{
    path[0] = '\0'; /* the console keeps the history */
}
