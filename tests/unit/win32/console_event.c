/* console_event.c - console_event.exe PROCESS EVENT: tells another process of a console event, by its number in
 * wincon.h: 2 the console window was closed, 5 log-off, 6 shutdown. GenerateConsoleCtrlEvent sends only Ctrl-C and
 * Ctrl-Break. The system itself starts a thread in the process, at CtrlRoutine in kernelbase.dll, which calls the
 * handlers; so does this program. System DLLs have the same address in all processes.
 *
 * Exit status: 0 when the thread was started, 77 when this system does not export CtrlRoutine, else 1. */
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STARTED, FAILED, NOT_EXPORTED = 77 };

int main(int argc, char **argv)
{
    const DWORD rights =
        PROCESS_CREATE_THREAD | PROCESS_QUERY_INFORMATION | PROCESS_VM_OPERATION | PROCESS_VM_WRITE | PROCESS_VM_READ;
    const FARPROC found = GetProcAddress(GetModuleHandleW(L"kernelbase"), "CtrlRoutine");
    LPTHREAD_START_ROUTINE routine;
    if (argc != 3) {
        fprintf(stderr, "usage: console_event PROCESS EVENT\n");
        return FAILED;
    }
    if (found == NULL) return NOT_EXPORTED;
    memcpy(&routine, &found, sizeof routine);
    const HANDLE process = OpenProcess(rights, FALSE, strtoul(argv[1], NULL, 10));
    const HANDLE thread = process != NULL ? CreateRemoteThread(process, NULL, 0, routine,
                                                               (void *)(ULONG_PTR)strtoul(argv[2], NULL, 10), 0, NULL)
                                          : NULL;
    if (thread != NULL) return STARTED; /* the process may end before the thread does */
    fprintf(stderr, "console_event: process %s: error %lu\n", argv[1], GetLastError());
    return FAILED;
}
