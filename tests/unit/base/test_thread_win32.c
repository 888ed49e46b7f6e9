/* test_thread_win32.c - the name of a thread, read with Windows calls. */
#include "support.h"

#include <windows.h>

#include "base/err.h"
#include "base/thread.h"

typedef HRESULT WINAPI get_description_fn(HANDLE thread, PWSTR *out);

static void look_around(void *arg)
{
    const FARPROC found = GetProcAddress(GetModuleHandleW(L"kernel32"), "GetThreadDescription");
    get_description_fn *get_description;
    wchar_t *description = NULL, *name = arg;
    memcpy(&get_description, &found, sizeof get_description);
    if (get_description == NULL || get_description(GetCurrentThread(), &description) < 0) return;
    (void)wcsncpy(name, description, 31);
    (void)LocalFree(description);
}

static void a_thread_has_a_name(void **state)
{
    wchar_t name[32] = L"";
    ls_thread thread;
    (void)state;
    assert_int_equal(ls_thread_start(&thread, "fifteen-letters-and-more", look_around, name), LS_OK);
    ls_thread_join(&thread);
    assert_int_equal(wcscmp(name, L"fifteen-letters"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
