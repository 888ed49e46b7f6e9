/* test_install_win32.c - the properties of the service that luaserve install creates, as the service manager receives
 * them: no program can read them back under Wine. The manager's calls are replaced. */
/* sanitizers: asan; no thread starts */
#include <winsock2.h>

#include <windows.h>

#include <lauxlib.h>

#include "cli/main_win32.h"
#include "support.h"

static struct {
    wchar_t needs[64]; /* its dependencies, a comma after each */
    DWORD sid_type;
    DWORD levels; /* a bit for each property that was set */
} made;

/* What the command line needs besides. */
int ls_line_read(const char *line, int argc, char **argv, ls_arguments *args)
{
    fail();
    return 0;
}

int ls_command_lua(int argc, char **argv)
{
    fail();
    return 0;
}

int ls_main_run_service(const ls_arguments *args)
{
    fail();
    return 0;
}

int ls_parent_program(char *path, size_t bytes)
{
    fail();
    return 0;
}

static SC_HANDLE WINAPI fake_manager(LPCWSTR machine, LPCWSTR database, DWORD access)
{
    (void)machine, (void)database, (void)access;
    return (SC_HANDLE)&made;
}

static SC_HANDLE WINAPI fake_create(SC_HANDLE manager, LPCWSTR name, LPCWSTR shown, DWORD access, DWORD type,
                                    DWORD start, DWORD control, LPCWSTR line, LPCWSTR group, LPDWORD tag,
                                    LPCWSTR needs, LPCWSTR user, LPCWSTR password)
{
    (void)shown, (void)access, (void)type, (void)start, (void)control, (void)line, (void)group, (void)tag;
    assert_ptr_equal(manager, &made);
    assert_int_equal(wcscmp(name, L"n\u00e4me"), 0);
    assert_int_equal(wcscmp(user, L"NT AUTHORITY\\LocalService"), 0);
    for (; *needs != L'\0'; needs += wcslen(needs) + 1) {
        wcscat(made.needs, needs);
        wcscat(made.needs, L",");
    }
    return (SC_HANDLE)&made;
}

static BOOL WINAPI fake_change(SC_HANDLE service, DWORD level, LPVOID info)
{
    assert_ptr_equal(service, &made);
    if (level == SERVICE_CONFIG_SERVICE_SID_INFO) made.sid_type = ((SERVICE_SID_INFO *)info)->dwServiceSidType;
    made.levels |= 1u << level;
    return TRUE;
}

static BOOL WINAPI fake_close(SC_HANDLE handle)
{
    assert_ptr_equal(handle, &made);
    return TRUE;
}

static LSTATUS WINAPI fake_key(HKEY root, LPCWSTR path, DWORD reserved, LPWSTR class, DWORD options, REGSAM access,
                               const LPSECURITY_ATTRIBUTES security, PHKEY key, LPDWORD created)
{
    (void)root, (void)path, (void)reserved, (void)class, (void)options, (void)access, (void)security, (void)key;
    return ERROR_ACCESS_DENIED;
}

SC_HANDLE(WINAPI *__wrap___imp_OpenSCManagerW)(LPCWSTR, LPCWSTR, DWORD) = fake_manager;
SC_HANDLE(WINAPI *__wrap___imp_CreateServiceW)
(SC_HANDLE, LPCWSTR, LPCWSTR, DWORD, DWORD, DWORD, DWORD, LPCWSTR, LPCWSTR, LPDWORD, LPCWSTR, LPCWSTR,
 LPCWSTR) = fake_create;
BOOL(WINAPI *__wrap___imp_ChangeServiceConfig2W)(SC_HANDLE, DWORD, LPVOID) = fake_change;
BOOL(WINAPI *__wrap___imp_CloseServiceHandle)(SC_HANDLE) = fake_close;
LSTATUS(WINAPI *__wrap___imp_RegCreateKeyExW)
(HKEY, LPCWSTR, DWORD, LPWSTR, DWORD, REGSAM, const LPSECURITY_ATTRIBUTES, PHKEY, LPDWORD) = fake_key;

static void install(void)
{
    lua_State *L = luaL_newstate();
    assert_non_null(L);
    memset(&made, 0, sizeof made);
    lua_newtable(L);
    luaL_setfuncs(L, ls_service_functions, 0);
    lua_getfield(L, -1, "create");
    lua_pushliteral(L, "n\xc3\xa4me");
    lua_pushliteral(L, "luaserve.exe run-as-service site.lua");
    lua_pushliteral(L, "Serves site.lua.");
    assert_int_equal(lua_pcall(L, 3, LUA_MULTRET, 0), LUA_OK);
    assert_true(lua_toboolean(L, -1));
    lua_close(L);
}

/* "If the result is NONE, then a firewall rule cannot be applied to that service", and NONE is what it would be. */
TEST(a_firewall_rule_can_name_the_service)
{
    install();
    assert_true(made.levels & 1u << SERVICE_CONFIG_SERVICE_SID_INFO);
    assert_int_equal(made.sid_type, SERVICE_SID_TYPE_UNRESTRICTED);
}

TEST(a_disabled_http_driver_does_not_stop_the_service)
{
    install();
    assert_int_equal(wcscmp(made.needs, L"Tcpip,Afd,"), 0);
}
