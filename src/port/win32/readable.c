/* readable.c - see readable.h. */
#include "port/win32/readable.h"

#include <io.h>
#include <stdbool.h>
#include <winternl.h>

/* ntdll.dll exports it, but <winternl.h> of Microsoft's SDK does not declare it (that of mingw-w64 does). */
NTSTATUS NTAPI NtQueryInformationFile(HANDLE file, PIO_STATUS_BLOCK status, PVOID out, ULONG bytes,
                                      FILE_INFORMATION_CLASS what);

#include "port/notify.h"

ls_fd ls_readable_fd(ls_fd fd)
{
    if (fd > 2) return fd;
    const intptr_t handle = _get_osfhandle((int)fd);
    return handle >= 0 ? (ls_fd)handle : LS_FD_NONE; /* -2: the program has no console, a service for example */
}

ls_readable ls_readable_kind(HANDLE handle)
{
    DWORD mode;
    switch (GetFileType(handle)) {
    case FILE_TYPE_PIPE: return LS_READABLE_PIPE;
    case FILE_TYPE_CHAR: return GetConsoleMode(handle, &mode) ? LS_READABLE_CONSOLE : LS_READABLE_NONE;
    default: return LS_READABLE_NONE;
    }
}

/* The input records of a console include mouse, size, focus and key-up events, which are not read as characters. In
 * line mode nothing can be read before the end of a line. */
static uint32_t console_now(HANDLE handle, uint32_t *amount)
{
    INPUT_RECORD records[64];
    DWORD count = 0, mode = 0;
    uint32_t keys = 0;
    bool line = false;
    if (!PeekConsoleInputW(handle, records, sizeof records / sizeof records[0], &count)) {
        *amount = 0;
        return LS_EVENT_IN | LS_EVENT_HANGUP;
    }
    (void)GetConsoleMode(handle, &mode);
    for (DWORD i = 0; i < count; i++) {
        const KEY_EVENT_RECORD *key = &records[i].Event.KeyEvent;
        if (records[i].EventType != KEY_EVENT || !key->bKeyDown || key->uChar.UnicodeChar == 0) continue;
        keys++;
        if (key->uChar.UnicodeChar == L'\r') line = true;
    }
    *amount = keys;
    return keys > 0 && (line || !(mode & ENABLE_LINE_INPUT)) ? LS_EVENT_IN : 0;
}

/* true: the other end is closed. Data written before can still be read. */
static bool peer_closed(HANDLE pipe)
{
    /* FilePipeLocalInformation and FILE_PIPE_LOCAL_INFORMATION; only the headers of the driver kit declare them. */
    enum { LOCAL_INFORMATION = 24, CONNECTED = 3 };
    struct {
        ULONG type, configuration, instances_max, instances, inbound_quota, readable, outbound_quota, writable, state,
            end;
    } now;
    IO_STATUS_BLOCK status;
    return NtQueryInformationFile(pipe, &status, &now, sizeof now, (FILE_INFORMATION_CLASS)LOCAL_INFORMATION) >= 0 &&
           now.state != CONNECTED;
}

uint32_t ls_readable_now(HANDLE handle, ls_readable kind, uint32_t *amount)
{
    DWORD bytes = 0;
    if (kind == LS_READABLE_CONSOLE) return console_now(handle, amount);
    *amount = 0;
    if (!PeekNamedPipe(handle, NULL, 0, NULL, &bytes, NULL)) {
        if (GetLastError() != ERROR_ACCESS_DENIED) return LS_EVENT_IN | LS_EVENT_HANGUP;
        return peer_closed(handle) ? LS_EVENT_OUT | LS_EVENT_ERR : LS_EVENT_OUT; /* the write end cannot be peeked */
    }
    *amount = bytes;
    if (peer_closed(handle)) return LS_EVENT_IN | LS_EVENT_HANGUP;
    return bytes > 0 ? LS_EVENT_IN : 0;
}
