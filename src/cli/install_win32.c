/* install_win32.c - luaserve install and uninstall: create and delete the service (Service Control Manager). The
 * command line of the service is luaserve run-as-service with complete paths; service_win32.c implements it. */
#include "cli/main_win32.h"
#include "cli/options.h"

#include <windows.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STOP_MS_MAX = 60000, /* time for a service to drain before uninstall deletes it */
    STOP_POLL_MS = 100,
    RESTART_MS = 5000, /* after a failure, three times in RESTART_RESET_S */
    RESTART_RESET_S = 86400,
    PRESHUTDOWN_MS = 30000, /* at a system shutdown: the default drain timeout, plus time to close */
};

/* ---- error messages ---------------------------------------------------------------------------------------------- */

static int explain(const char *name, const char *what, unsigned long error)
{
    char text[LS_SERVICE_NAME_CHARS_MAX * 4 + 64];
    switch (error) {
    case ERROR_ACCESS_DENIED:
        fprintf(stderr,
                "luaserve: cannot %s the service \"%s\": access denied (error 5); run this as an administrator\n",
                what, name);
        return LS_STATUS_FAILED;
    case ERROR_SERVICE_EXISTS:
    case ERROR_DUPLICATE_SERVICE_NAME:
        fprintf(stderr,
                "luaserve: the service \"%s\" already exists (error %lu); give another --name, or first run: luaserve "
                "uninstall --name \"%s\"\n",
                name, error, name);
        return LS_STATUS_FAILED;
    case ERROR_SERVICE_DOES_NOT_EXIST:
        fprintf(stderr, "luaserve: the service \"%s\" does not exist (error %lu); give the --name of its install\n",
                name, error);
        return LS_STATUS_FAILED;
    case ERROR_SERVICE_MARKED_FOR_DELETE:
        fprintf(stderr,
                "luaserve: the service \"%s\" is marked for deletion (error %lu); close every program that has it "
                "open, "
                "such as services.msc\n",
                name, error);
        return LS_STATUS_FAILED;
    case ERROR_INVALID_NAME:
        fprintf(stderr, "luaserve: invalid service name \"%s\"; give 1 to %d characters without / and \\\n", name,
                LS_SERVICE_NAME_CHARS_MAX);
        return LS_STATUS_USAGE;
    default: snprintf(text, sizeof text, "cannot %s the service \"%s\"", what, name); return ls_main_fail(text, error);
    }
}

/* Checks the rules of CreateServiceW, which Wine does not check. */
static wchar_t *service_name(const char *name)
{
    wchar_t *wide = strpbrk(name, "/\\") == NULL ? ls_main_wide(name) : NULL;
    if (wide != NULL && wide[0] != L'\0' && wcslen(wide) <= LS_SERVICE_NAME_CHARS_MAX) return wide;
    free(wide);
    return NULL;
}

/* ---- install ----------------------------------------------------------------------------------------------------- */

static int add(wchar_t *line, const char *option, const char *value)
{
    wchar_t *wide = ls_main_wide(value);
    int err = wide == NULL ? -1 : 0;
    if (err == 0 && option != NULL) {
        wchar_t *wide_option = ls_main_wide(option);
        err = wide_option != NULL ? ls_main_quote(line, LS_COMMAND_CHARS_MAX, wide_option) : -1;
        free(wide_option);
    }
    if (err == 0) err = ls_main_quote(line, LS_COMMAND_CHARS_MAX, wide);
    free(wide);
    return err;
}

/* The command line of the service. 0, or -1: too long. */
static int compose(const ls_arguments *args, const char *name, const wchar_t *site, const wchar_t *log, wchar_t *line)
{
    wchar_t program[LS_COMMAND_CHARS_MAX];
    char threads[16];
    const DWORD n = GetModuleFileNameW(NULL, program, LS_COMMAND_CHARS_MAX);
    line[0] = L'\0';
    if (n == 0 || n >= LS_COMMAND_CHARS_MAX || ls_main_quote(line, LS_COMMAND_CHARS_MAX, program) < 0) return -1;
    if (add(line, "run-as-service", "--name") < 0 || add(line, NULL, name) < 0) return -1;
    if (add(line, NULL, "--log") < 0 || ls_main_quote(line, LS_COMMAND_CHARS_MAX, log) < 0) return -1;
    snprintf(threads, sizeof threads, "%u", args->server.threads);
    if (args->server.threads > 0 && add(line, "--threads", threads) < 0) return -1;
    if (args->server.backend != NULL && add(line, "--backend", args->server.backend) < 0) return -1;
    if (args->log_level != NULL && add(line, "--log-level", args->log_level) < 0) return -1;
    if (ls_main_quote(line, LS_COMMAND_CHARS_MAX, site) < 0) return -1; /* a complete path does not start with "-" */
    for (int i = 0; i < args->server.argc; i++)
        if (add(line, NULL, args->server.argv[i]) < 0) return -1;
    return 0;
}

static wchar_t *log_beside(const wchar_t *site)
{
    const size_t len = wcslen(site);
    wchar_t *log = malloc((len + sizeof ".log") * sizeof *log);
    if (log == NULL) return NULL;
    memcpy(log, site, len * sizeof *log);
    memcpy(log + len, L".log", sizeof L".log");
    return log;
}

/* Set optional properties; the service works without them. */
static void describe(SC_HANDLE service, const wchar_t *site)
{
    wchar_t text[512];
    (void)_snwprintf(text, sizeof text / sizeof text[0], L"Serves %ls.", site);
    text[sizeof text / sizeof text[0] - 1] = L'\0';
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

/* The source of the service in the system's event log, without which its viewer puts a sentence about a missing
 * description before the text. The messages 1 to 1000 of EventCreate.exe are their first insertion. */
static void event_source(const wchar_t *name, bool exists)
{
    static const wchar_t below[] = L"SYSTEM\\CurrentControlSet\\Services\\EventLog\\Application\\";
    static const wchar_t file[] = L"%SystemRoot%\\System32\\EventCreate.exe";
    const DWORD types = EVENTLOG_ERROR_TYPE | EVENTLOG_WARNING_TYPE | EVENTLOG_INFORMATION_TYPE;
    wchar_t path[sizeof below / sizeof below[0] + LS_SERVICE_NAME_CHARS_MAX];
    HKEY key;
    wcscpy(path, below);
    wcscat(path, name);
    if (!exists) {
        (void)RegDeleteKeyW(HKEY_LOCAL_MACHINE, path);
        return;
    }
    if (RegCreateKeyExW(HKEY_LOCAL_MACHINE, path, 0, NULL, 0, KEY_SET_VALUE, NULL, &key, NULL) != ERROR_SUCCESS)
        return;
    (void)RegSetValueExW(key, L"EventMessageFile", 0, REG_EXPAND_SZ, (const BYTE *)file, sizeof file);
    (void)RegSetValueExW(key, L"TypesSupported", 0, REG_DWORD, (const BYTE *)&types, sizeof types);
    (void)RegCloseKey(key);
}

static bool is_beside(const wchar_t *site, const wchar_t *log)
{
    const wchar_t *const end = wcsrchr(site, L'\\'), *const log_end = wcsrchr(log, L'\\');
    return end != NULL && log_end != NULL && end - site == log_end - log &&
           wcsncmp(site, log, (size_t)(end - site)) == 0;
}

/* What an administrator still has to do. The commands are valid in cmd and in PowerShell, where (OI) without quotation
 * marks would be an expression. */
static void advise(const char *name, const char *log, bool beside)
{
    const char *const end = strrchr(log, '\\');
    printf("The service \"%s\" is installed. It starts with the system; to start it now: net start \"%s\"\nLog: %s\n",
           name, name, log);
    printf("If the service may not write there: icacls \"%.*s\" /grant \"NT SERVICE\\%s:(OI)(CI)M\"\n",
           end != NULL ? (int)(end - log) : (int)strlen(log), log, name);
    if (beside) printf("That lets it change the site as well: better give --log a file in another folder.\n");
    printf("If others shall connect, in PowerShell: New-NetFirewallRule -DisplayName \"%s\" -Service \"%s\" "
           "-Direction Inbound -Action Allow\n",
           name, name);
}

static int create(const char *name, const wchar_t *wide_name, const wchar_t *line, const wchar_t *site)
{
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CREATE_SERVICE);
    if (manager == NULL) return explain(name, "install", GetLastError());
    SC_HANDLE service = CreateServiceW(manager, wide_name, wide_name, SERVICE_CHANGE_CONFIG | SERVICE_START,
                                       SERVICE_WIN32_OWN_PROCESS, SERVICE_AUTO_START, SERVICE_ERROR_NORMAL, line, NULL,
                                       NULL, L"Tcpip\0Afd\0", L"NT AUTHORITY\\LocalService", L"");
    const DWORD error = service == NULL ? GetLastError() : 0;
    if (service != NULL) {
        describe(service, site);
        CloseServiceHandle(service);
    }
    CloseServiceHandle(manager);
    return error != 0 ? explain(name, "install", error) : LS_STATUS_OK;
}

static int install(const ls_arguments *args)
{
    static wchar_t line[LS_COMMAND_CHARS_MAX];
    const char *name = args->name;
    int status = LS_STATUS_FAILED;
    wchar_t *wide_name = service_name(name);
    if (wide_name == NULL) return explain(name, "install", ERROR_INVALID_NAME);
    wchar_t *site = ls_main_full_path(args->server.site);
    wchar_t *log = args->log != NULL ? ls_main_full_path(args->log) : site != NULL ? log_beside(site) : NULL;
    char *log_text = log != NULL ? ls_main_utf8(log) : NULL;
    const DWORD kind = site != NULL ? GetFileAttributesW(site) : INVALID_FILE_ATTRIBUTES;
    if (log_text == NULL) {
        fprintf(stderr, "luaserve: invalid path of the site or the log: \"%s\"\n",
                args->log != NULL ? args->log : args->server.site);
    } else if (kind == INVALID_FILE_ATTRIBUTES || (kind & FILE_ATTRIBUTE_DIRECTORY)) {
        fprintf(stderr, "luaserve: cannot install %s: no such file%s\n", args->server.site,
                ls_main_site_hint(args->server.site));
    } else if (compose(args, name, site, log, line) < 0) {
        fprintf(stderr, "luaserve: the command line of the service is longer than %d characters\n",
                LS_COMMAND_CHARS_MAX);
    } else if ((status = create(name, wide_name, line, site)) == LS_STATUS_OK) {
        event_source(wide_name, true);
        advise(name, log_text, is_beside(site, log));
    }
    free(log_text);
    free(log);
    free(site);
    free(wide_name);
    return status;
}

/* ---- uninstall --------------------------------------------------------------------------------------------------- */

/* Stop the service and wait until it has ended. A service that is still starting accepts no stop request, so the
 * request is repeated. 0: it has not ended in time. */
static int stopped(SC_HANDLE service)
{
    SERVICE_STATUS_PROCESS status;
    SERVICE_STATUS unused;
    DWORD bytes;
    for (unsigned ms = 0; ms < STOP_MS_MAX; ms += STOP_POLL_MS) {
        if (!QueryServiceStatusEx(service, SC_STATUS_PROCESS_INFO, (BYTE *)&status, sizeof status, &bytes)) return 0;
        if (status.dwCurrentState == SERVICE_STOPPED) return 1;
        if (status.dwCurrentState != SERVICE_STOP_PENDING)
            (void)ControlService(service, SERVICE_CONTROL_STOP, &unused);
        Sleep(STOP_POLL_MS); /* NotifyServiceStatusChange would need a thread in an alertable wait */
    }
    return 0;
}

static int uninstall(const char *name)
{
    int status = LS_STATUS_FAILED;
    wchar_t *wide_name = service_name(name);
    if (wide_name == NULL) return explain(name, "uninstall", ERROR_INVALID_NAME);
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT);
    SC_HANDLE service =
        manager != NULL ? OpenServiceW(manager, wide_name, DELETE | SERVICE_STOP | SERVICE_QUERY_STATUS) : NULL;
    if (service == NULL) {
        status = explain(name, "uninstall", GetLastError());
    } else {
        if (!stopped(service))
            fprintf(stderr, "luaserve: the service \"%s\" has not stopped within %d s; it is deleted when it ends\n",
                    name, STOP_MS_MAX / 1000);
        if (!DeleteService(service)) {
            status = explain(name, "uninstall", GetLastError());
        } else {
            event_source(wide_name, false);
            printf("The service \"%s\" is deleted. Its log remains.\n", name);
            status = LS_STATUS_OK;
        }
        CloseServiceHandle(service);
    }
    if (manager != NULL) CloseServiceHandle(manager);
    free(wide_name);
    return status;
}

int ls_command_service(int argc, char **argv)
{
    ls_arguments args = {.name = LS_SERVICE_NAME};
    const int is_uninstall = strcmp(argv[0], "uninstall") == 0;
    if (ls_line_read(argc, argv, is_uninstall ? LS_LINE_UNINSTALL : LS_LINE_SERVICE, &args) < 0)
        return ls_command_explain(is_uninstall ? "uninstall" : "service", argc, argv);
    if (is_uninstall) return uninstall(args.name);
    return strcmp(argv[0], "install") == 0 ? install(&args) : ls_main_run_service(&args);
}
