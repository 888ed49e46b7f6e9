/* test_main_win32.c - the error mode of the program: no dialog box, and a crash is reported to Windows. The error mode
 * and the calls of Windows Error Reporting are replaced. */
/* sanitizers: asan; no thread starts */
#include <winsock2.h>

#include <windows.h>

#include "cli/main_win32.h"
#include "support.h"

int wmain(int argc, wchar_t **wide);

static struct {
    UINT mode;
    DWORD flags;
    HRESULT result; /* of WerSetFlags */
    int commands;
} sys;

int ls_command_line(int argc, char **argv)
{
    assert_int_equal(argc, 1);
    assert_string_equal(argv[0], "luaserve");
    sys.commands++;
    return 0;
}

static UINT WINAPI fake_mode(UINT mode)
{
    sys.mode = mode;
    return 0;
}

static HRESULT WINAPI fake_flags(DWORD flags)
{
    sys.flags = flags;
    return sys.result;
}

UINT(WINAPI *__wrap___imp_SetErrorMode)(UINT) = fake_mode;
HRESULT(WINAPI *__wrap___imp_WerSetFlags)(DWORD) = fake_flags;

static void start(HRESULT result)
{
    wchar_t name[] = L"luaserve", *argv[] = {name, NULL};
    memset(&sys, 0, sizeof sys);
    sys.result = result;
    assert_int_equal(wmain(1, argv), 0);
    assert_int_equal(sys.commands, 1);
    assert_true(sys.mode & SEM_FAILCRITICALERRORS);
}

/* SEM_NOGPFAULTERRORBOX turns off the report as well: no dump, and no event 1000 in the log of the system. */
TEST(a_crash_is_reported_without_a_dialog)
{
    enum { NO_UI = 0x20 };
    start(S_OK);
    assert_int_equal(sys.flags, NO_UI);
    assert_false(sys.mode & SEM_NOGPFAULTERRORBOX);
}

TEST(a_system_without_reports_shows_no_dialog)
{
    start(E_NOTIMPL);
    assert_true(sys.mode & SEM_NOGPFAULTERRORBOX);
}
