/* set_event.c - set_event.exe: sets the event of each process whose id it reads, with which luaserve loads its site
 * again, and answers "set" or the error. A test that reloads many times starts it once; luaserve reload does the
 * same. */
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#include "base/os/signals_win32.h"

int main(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        wchar_t name[LS_EVENT_NAME_CHARS_MAX];
        (void)_snwprintf(name, LS_EVENT_NAME_CHARS_MAX, LS_RELOAD_EVENT, strtoul(line, NULL, 10));
        const HANDLE event = OpenEventW(EVENT_MODIFY_STATE, FALSE, name);
        if (event != NULL && SetEvent(event))
            printf("set\n");
        else
            printf("process %lu: error %lu\n", strtoul(line, NULL, 10), GetLastError());
        (void)fflush(stdout);
        if (event != NULL) (void)CloseHandle(event);
    }
    return 0;
}
