/* httpsys_api_win32.c - see httpsys_api_win32.h. */
#include "http/httpsys/httpsys_api_win32.h"

#include <stdio.h>
#include <string.h>

static bool find(HMODULE module, const char *name, void *out)
{
    const FARPROC found = GetProcAddress(module, name);
    memcpy(out, &found, sizeof found);
    return found != NULL;
}

#define FIND(name) find(module, "Http" #name, &api.name)

int ls_httpsys_api_load(ls_httpsys_api *out)
{
    ls_httpsys_api api;
    const HMODULE module = LoadLibraryExW(L"httpapi.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    if (module == NULL) return LS_ENOTSUP;
    memset(&api, 0, sizeof api);
    if (!FIND(Initialize) || !FIND(Terminate) || !FIND(CreateServerSession) || !FIND(CloseServerSession) ||
        !FIND(SetServerSessionProperty) || !FIND(CreateUrlGroup) || !FIND(CloseUrlGroup) ||
        !FIND(SetUrlGroupProperty) || !FIND(AddUrlToUrlGroup) || !FIND(RemoveUrlFromUrlGroup) ||
        !FIND(CreateRequestQueue) || !FIND(CloseRequestQueue) || !FIND(ReceiveHttpRequest) ||
        !FIND(ReceiveRequestEntityBody) || !FIND(SendHttpResponse))
        return LS_ENOTSUP;
    /* Only the ntdll of Wine exports wine_get_version. Its stubs of these three functions raise an exception. */
    if (GetProcAddress(GetModuleHandleW(L"ntdll"), "wine_get_version") == NULL &&
        (!FIND(SendResponseEntityBody) || !FIND(CancelHttpRequest) || !FIND(ShutdownRequestQueue)))
        return LS_ENOTSUP;
    api.CancelIoEx = CancelIoEx;
    *out = api;
    return LS_OK;
}

void ls_httpsys_explain(const char *url, ULONG error, char *message, size_t message_bytes)
{
    char text[160] = "", domain[128], user[128];
    const DWORD size = sizeof user;
    switch (error) {
    case ERROR_ACCESS_DENIED:
        /* The names, because PowerShell does not know %USERNAME%, and a service runs as another user. */
        if (GetEnvironmentVariableA("USERDOMAIN", domain, size) - 1 >= size - 1) (void)snprintf(domain, size, ".");
        if (GetEnvironmentVariableA("USERNAME", user, size) - 1 >= size - 1) (void)snprintf(user, size, "USER");
        (void)snprintf(message, message_bytes,
                       "http.sys refuses %s: access denied (error 5): the user %s\\%s may not register the URL. As "
                       "administrator, run once: netsh http add urlacl url=%s user=\"%s\\%s\"",
                       url, domain, user, url, domain, user);
        return;
    case ERROR_ALREADY_EXISTS:
        (void)snprintf(message, message_bytes,
                       "http.sys refuses %s: it is registered already (error 183), by another program or an earlier "
                       "listener; \"netsh http show servicestate\" lists the registrations",
                       url);
        return;
    case ERROR_SHARING_VIOLATION:
        (void)snprintf(message, message_bytes,
                       "http.sys refuses %s: another program, without http.sys, listens on that port (error 32)", url);
        return;
    case ERROR_INVALID_PARAMETER:
    case ERROR_INVALID_NAME:
        (void)snprintf(message, message_bytes,
                       "http.sys refuses %s: invalid URL (error %lu), the form is http://host:port/path/; the host + "
                       "matches every name, the host * every name that no other URL matches",
                       url, error);
        return;
    default: break;
    }
    DWORD len = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, error, 0, text,
                               sizeof text, NULL);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == '.')) text[--len] = '\0';
    (void)snprintf(message, message_bytes, "http.sys refuses %s: %s (error %lu)", url,
                   len > 0 ? text : "unknown error", error);
}
