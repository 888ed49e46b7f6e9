/* test_path_win32.c - a directory on a volume that has no drive letter: the system has no DOS name for what lies
 * there, and says ERROR_PATH_NOT_FOUND of files that exist. Its name of volumes is that of the NT namespace. */
/* sanitizers: asan; no thread starts */
#include "base/io/path.h"
#include "support.h"

#include <windows.h>

static bool no_letter, no_name; /* of the volume; of the file: not even the name of the NT namespace */

extern DWORD(WINAPI *__real___imp_GetFinalPathNameByHandleW)(HANDLE, LPWSTR, DWORD, DWORD);

static DWORD WINAPI fake_final(HANDLE file, LPWSTR path, DWORD chars, DWORD flags)
{
    if (no_name || (no_letter && flags != VOLUME_NAME_NT)) return SetLastError(ERROR_PATH_NOT_FOUND), 0;
    return __real___imp_GetFinalPathNameByHandleW(file, path, chars, VOLUME_NAME_DOS); /* Wine 8 knows no other */
}

DWORD(WINAPI *__wrap___imp_GetFinalPathNameByHandleW)(HANDLE, LPWSTR, DWORD, DWORD) = fake_final;

static char folder[MAX_PATH], inside[MAX_PATH + 16], outside[MAX_PATH + 16], missing[MAX_PATH + 16];

static int make(void **state)
{
    char temporary[MAX_PATH];
    assert_in_range(GetTempPathA(sizeof temporary, temporary), 1, sizeof temporary - 1);
    (void)snprintf(folder, sizeof folder, "%s\\luaserve-path-%lu", temporary, (unsigned long)GetCurrentProcessId());
    (void)snprintf(inside, sizeof inside, "%s/in", folder);
    (void)snprintf(missing, sizeof missing, "%s/none/below", folder);
    (void)snprintf(outside, sizeof outside, "%s/../luaserve-path-%lu-2", folder, (unsigned long)GetCurrentProcessId());
    assert_true(CreateDirectoryA(folder, NULL) && CreateDirectoryA(inside, NULL) && CreateDirectoryA(outside, NULL));
    return 0;
}

static int clear(void **state)
{
    assert_true(RemoveDirectoryA(outside) && RemoveDirectoryA(inside) && RemoveDirectoryA(folder));
    return 0;
}

TEST(a_volume_without_a_drive_letter_is_checked)
{
    for (int letter = 0; letter <= 1; letter++) {
        no_letter = !letter;
        assert_int_equal(ls_path_check_beneath(folder, inside), LS_OK);
        assert_int_equal(ls_path_check_beneath(folder, missing), LS_OK);
        assert_int_equal(ls_path_check_beneath(folder, outside), LS_EACCES);
    }
    no_letter = false;
}

/* What exists and has no name is not a path that does not exist. */
TEST(a_file_without_a_name_is_refused)
{
    no_name = true;
    assert_int_equal(ls_path_check_beneath(folder, inside), LS_EACCES);
    no_name = false;
}

int main(void)
{
    return test_run(make, clear);
}
