/* install_win32.c - the functions of lua/luaserve/command/service.lua (luaserve install and uninstall): they create
 * and delete a service (Service Control Manager), and its source in the event log. service_win32.c implements the
 * service. */
#include "cli/main_win32.h"

#include <windows.h>

#include <lauxlib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/parent.h"
#include "script/core/lua/push.h"

enum {
    STOP_MS_MAX = 60000, /* time for a service to drain before uninstall deletes it */
    STOP_POLL_MS = 100,
    RESTART_MS = 5000, /* after a failure, three times in RESTART_RESET_S */
    RESTART_RESET_S = 86400,
    PRESHUTDOWN_MS = 30000, /* at a system shutdown: the default drain timeout, plus time to close */
};

/* The text at `index` in UTF-16, in a userdata that is pushed. */
static wchar_t *push_wide(lua_State *L, int index)
{
    const char *text = luaL_checkstring(L, index);
    const int chars = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    luaL_argcheck(L, chars > 0, index, "invalid UTF-8");
    wchar_t *wide = lua_newuserdatauv(L, (size_t)chars * sizeof *wide, 0);
    (void)MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, chars);
    return wide;
}

/* true, or nil, the error number and its text. */
static int push_result(lua_State *L, DWORD error)
{
    char reason[LS_REASON_BYTES_MAX];
    if (error == 0) {
        return ls_push_boolean(L, 1);
    }
    lua_pushnil(L);
    lua_pushinteger(L, (lua_Integer)error);
    lua_pushstring(L, ls_main_reason(error, reason, sizeof reason));
    return 3;
}

/* ---- create
 * ------------------------------------------------------------------------------------------------------ */

/* Set optional properties; the service works without them. */
static void describe(SC_HANDLE service, wchar_t *text)
{
    SERVICE_DESCRIPTIONW description = {text};
    SERVICE_PRESHUTDOWN_INFO preshutdown = {PRESHUTDOWN_MS};
    (void)ChangeServiceConfig2W(service, SERVICE_CONFIG_DESCRIPTION, &description);
    (void)ChangeServiceConfig2W(service, SERVICE_CONFIG_PRESHUTDOWN_INFO, &preshutdown);
    /* NT SERVICE\NAME: without it a firewall rule for the service matches nothing. */
    SERVICE_SID_INFO sid = {SERVICE_SID_TYPE_UNRESTRICTED};
    (void)ChangeServiceConfig2W(service, SERVICE_CONFIG_SERVICE_SID_INFO, &sid);
    /* An address may be in use for some time after a service was ended by force: its connections keep it. */
    SC_ACTION restarts[] = {{SC_ACTION_RESTART, RESTART_MS},
                            {SC_ACTION_RESTART, RESTART_MS},
                            {SC_ACTION_RESTART, RESTART_MS},
                            {SC_ACTION_NONE, 0}};
    SERVICE_FAILURE_ACTIONSW failure = {
        .dwResetPeriod = RESTART_RESET_S, .cActions = sizeof restarts / sizeof restarts[0], .lpsaActions = restarts};
    SERVICE_FAILURE_ACTIONS_FLAG also_errors = {TRUE};
    (void)ChangeServiceConfig2W(service, SERVICE_CONFIG_FAILURE_ACTIONS, &failure);
    (void)ChangeServiceConfig2W(service, SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, &also_errors);
}

static const wchar_t *push_event_source(lua_State *L)
{
    lua_pushfstring(L, "SYSTEM\\CurrentControlSet\\Services\\EventLog\\Application\\%s", lua_tostring(L, 1));
    return push_wide(L, -1);
}

/* The source of the service in the system's event log, without which its viewer puts a sentence about a missing
 * description before the text. The messages 1 to 1000 of EventCreate.exe are their first insertion. */
static void add_event_source(const wchar_t *path)
{
    static const wchar_t file[] = L"%SystemRoot%\\System32\\EventCreate.exe";
    const DWORD types = EVENTLOG_ERROR_TYPE | EVENTLOG_WARNING_TYPE | EVENTLOG_INFORMATION_TYPE;
    HKEY key;
    if (RegCreateKeyExW(HKEY_LOCAL_MACHINE, path, 0, NULL, 0, KEY_SET_VALUE, NULL, &key, NULL) != ERROR_SUCCESS)
        return;
    (void)RegSetValueExW(key, L"EventMessageFile", 0, REG_EXPAND_SZ, (const BYTE *)file, sizeof file);
    (void)RegSetValueExW(key, L"TypesSupported", 0, REG_DWORD, (const BYTE *)&types, sizeof types);
    (void)RegCloseKey(key);
}

/* create(name, line, description) -> true | nil, error number, text */
static int service_create(lua_State *L)
{
    const wchar_t *name = push_wide(L, 1), *line = push_wide(L, 2), *source = push_event_source(L);
    wchar_t *description = push_wide(L, 3);
    DWORD error = 0;
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CREATE_SERVICE);
    if (manager == NULL) return push_result(L, GetLastError());
    SC_HANDLE service = CreateServiceW(manager, name, name, SERVICE_CHANGE_CONFIG | SERVICE_START,
                                       SERVICE_WIN32_OWN_PROCESS, SERVICE_AUTO_START, SERVICE_ERROR_NORMAL, line, NULL,
                                       NULL, L"Tcpip\0Afd\0", L"NT AUTHORITY\\LocalService", L"");
    if (service == NULL) {
        error = GetLastError();
    } else {
        describe(service, description);
        add_event_source(source);
        CloseServiceHandle(service);
    }
    CloseServiceHandle(manager);
    return push_result(L, error);
}

/* ---- delete
 * ------------------------------------------------------------------------------------------------------ */

/* Stop the service and wait until it has ended. A service that is still starting accepts no stop request, so the
 * request is repeated. false: it has not ended in time. */
static bool stopped(SC_HANDLE service)
{
    SERVICE_STATUS_PROCESS status;
    SERVICE_STATUS unused;
    DWORD bytes;
    for (unsigned ms = 0; ms < STOP_MS_MAX; ms += STOP_POLL_MS) {
        if (!QueryServiceStatusEx(service, SC_STATUS_PROCESS_INFO, (BYTE *)&status, sizeof status, &bytes))
            return false;
        if (status.dwCurrentState == SERVICE_STOPPED) return true;
        if (status.dwCurrentState != SERVICE_STOP_PENDING)
            (void)ControlService(service, SERVICE_CONTROL_STOP, &unused);
        Sleep(STOP_POLL_MS); /* NotifyServiceStatusChange would need a thread in an alertable wait */
    }
    return false;
}

/* delete(name, late) -> true | nil, error number, text. late(seconds) is called if the service does not stop in
 * time. */
static int service_delete(lua_State *L)
{
    const wchar_t *name = push_wide(L, 1), *source = push_event_source(L);
    DWORD error = 0;
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT);
    SC_HANDLE service =
        manager != NULL ? OpenServiceW(manager, name, DELETE | SERVICE_STOP | SERVICE_QUERY_STATUS) : NULL;
    if (service == NULL) {
        error = GetLastError();
    } else {
        if (!stopped(service)) {
            lua_pushvalue(L, 2);
            lua_pushinteger(L, STOP_MS_MAX / 1000);
            lua_call(L, 1, 0);
        }
        if (!DeleteService(service))
            error = GetLastError();
        else
            (void)RegDeleteKeyW(HKEY_LOCAL_MACHINE, source);
        CloseServiceHandle(service);
    }
    if (manager != NULL) CloseServiceHandle(manager);
    return push_result(L, error);
}

/* ---- paths
 * ------------------------------------------------------------------------------------------------------- */

/* full_path(path) -> the complete path | nil */
static int service_full_path(lua_State *L)
{
    wchar_t *full = ls_main_full_path(luaL_checkstring(L, 1));
    char *text = full != NULL ? ls_main_utf8(full) : NULL;
    lua_pushstring(L, text); /* nil for NULL */
    free(full);
    free(text);
    return 1;
}

/* hint(site) -> what the system adds to the message about a file that does not exist */
static int service_hint(lua_State *L)
{
    return ls_push_text(L, ls_main_site_hint(luaL_checkstring(L, 1)));
}

/* program() -> the path of this program */
static int service_program(lua_State *L)
{
    char path[3 * LS_COMMAND_CHARS_MAX];
    if (ls_parent_program(path, sizeof path) < 0) return luaL_error(L, "the path of the program is unknown");
    return ls_push_text(L, path);
}

const luaL_Reg ls_service_functions[] = {{"create", service_create},       {"delete", service_delete},
                                         {"full_path", service_full_path}, {"hint", service_hint},
                                         {"program", service_program},     {NULL, NULL}};

int ls_command_service(int argc, char **argv)
{
    ls_arguments args = {.name = LS_SERVICE_NAME};
    if (strcmp(argv[0], "run-as-service") != 0) return ls_command_lua(argc, argv);
    const int status = ls_line_read("service", argc, argv, &args);
    return status == LS_LINE_READ ? ls_main_run_service(&args) : status;
}
