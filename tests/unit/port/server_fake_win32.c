/* server_fake_win32.c - a server edition of Windows for the tests of sends, which then use TransmitFile. */
#include <windows.h>

static BOOL WINAPI no_workstation(LPOSVERSIONINFOEXW about, DWORD mask, DWORDLONG conditions)
{
    (void)about, (void)mask, (void)conditions;
    SetLastError(ERROR_OLD_WIN_VERSION);
    return FALSE;
}

extern BOOL(WINAPI *__wrap___imp_VerifyVersionInfoW)(LPOSVERSIONINFOEXW, DWORD, DWORDLONG);
BOOL(WINAPI *__wrap___imp_VerifyVersionInfoW)(LPOSVERSIONINFOEXW, DWORD, DWORDLONG) = no_workstation;
