/* test_thread_win32.c - the name of a thread, read with Windows calls; the number of processors, with a fake of
 * them. */
#include "support.h"

#include <windows.h>

#include "base/os/thread.h"

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

TEST(a_thread_has_a_name)
{
    wchar_t name[32] = L"";
    ls_thread thread;
    assert_int_equal(ls_thread_start(&thread, "fifteen-letters-and-more", look_around, name), LS_OK);
    ls_thread_join(&thread);
    assert_int_equal(wcscmp(name, L"fifteen-letters"), 0);
}

/* ---- processors
 * ---------------------------------------------------------------------------------------------------- */

static struct {
    DWORD_PTR ours, systems;
    BOOL known;
    WORD groups;
    DWORD all;
} machine;

static BOOL WINAPI fake_mask(HANDLE process, PDWORD_PTR ours, PDWORD_PTR systems)
{
    *ours = machine.ours;
    *systems = machine.systems;
    return machine.known;
}

static WORD WINAPI fake_groups(void)
{
    return machine.groups;
}

static DWORD WINAPI fake_count(WORD group)
{
    assert_int_equal(group, ALL_PROCESSOR_GROUPS);
    return machine.all;
}

BOOL(WINAPI *__wrap___imp_GetProcessAffinityMask)(HANDLE, PDWORD_PTR, PDWORD_PTR) = fake_mask;
WORD(WINAPI *__wrap___imp_GetActiveProcessorGroupCount)(void) = fake_groups;
DWORD(WINAPI *__wrap___imp_GetActiveProcessorCount)(WORD) = fake_count;

TEST(processors_of_all_groups_count)
{
    static const struct {
        DWORD_PTR ours, systems;
        BOOL known;
        WORD groups;
        DWORD all;
        unsigned expected;
    } table[] = {
        {0xff, 0xff, TRUE, 1, 8, 8},
        {0x0f, 0xff, TRUE, 1, 8, 4},                     /* the user has set the affinity */
        {~(DWORD_PTR)0, ~(DWORD_PTR)0, TRUE, 2, 96, 96}, /* the whole first group */
        {0x3, ~(DWORD_PTR)0, TRUE, 2, 96, 2},
        {0, 0, TRUE, 2, 96, 96}, /* threads in several groups */
        {0, 0, FALSE, 1, 0, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        machine.ours = table[i].ours;
        machine.systems = table[i].systems;
        machine.known = table[i].known;
        machine.groups = table[i].groups;
        machine.all = table[i].all;
        assert_int_equal(ls_cpu_count(), table[i].expected);
    }
}
