/* httpsys_api_win32.h - the functions of httpapi.dll as a table, so that the program starts without the DLL and a test
 * can replace them. Names, arguments and results are those of the HTTP Server API, version 2 (http.h in the Windows
 * documentation). */
#ifndef LS_HTTP_HTTPSYS_HTTPSYS_API_WIN32_H
#define LS_HTTP_HTTPSYS_HTTPSYS_API_WIN32_H

#include "port/winsock_win32.h"
/* http.h needs the types of winsock_win32.h. */
#include <http.h>
#include <stddef.h>

typedef struct ls_httpsys_api {
    ULONG(WINAPI *Initialize)(HTTPAPI_VERSION, ULONG, void *);
    ULONG(WINAPI *Terminate)(ULONG, void *);
    ULONG(WINAPI *CreateServerSession)(HTTPAPI_VERSION, HTTP_SERVER_SESSION_ID *, ULONG);
    ULONG(WINAPI *CloseServerSession)(HTTP_SERVER_SESSION_ID);
    ULONG(WINAPI *SetServerSessionProperty)(HTTP_SERVER_SESSION_ID, HTTP_SERVER_PROPERTY, void *, ULONG);
    ULONG(WINAPI *CreateUrlGroup)(HTTP_SERVER_SESSION_ID, HTTP_URL_GROUP_ID *, ULONG);
    ULONG(WINAPI *CloseUrlGroup)(HTTP_URL_GROUP_ID);
    ULONG(WINAPI *SetUrlGroupProperty)(HTTP_URL_GROUP_ID, HTTP_SERVER_PROPERTY, void *, ULONG);
    ULONG(WINAPI *AddUrlToUrlGroup)(HTTP_URL_GROUP_ID, PCWSTR, HTTP_URL_CONTEXT, ULONG);
    ULONG(WINAPI *RemoveUrlFromUrlGroup)(HTTP_URL_GROUP_ID, PCWSTR, ULONG);
    ULONG(WINAPI *CreateRequestQueue)(HTTPAPI_VERSION, PCWSTR, SECURITY_ATTRIBUTES *, ULONG, HANDLE *);
    ULONG(WINAPI *CloseRequestQueue)(HANDLE);
    ULONG(WINAPI *ReceiveHttpRequest)(HANDLE, HTTP_REQUEST_ID, ULONG, HTTP_REQUEST *, ULONG, ULONG *, OVERLAPPED *);
    ULONG(WINAPI *ReceiveRequestEntityBody)(HANDLE, HTTP_REQUEST_ID, ULONG, void *, ULONG, ULONG *, OVERLAPPED *);
    ULONG(WINAPI *SendHttpResponse)
    (HANDLE, HTTP_REQUEST_ID, ULONG, HTTP_RESPONSE *, void *, ULONG *, void *, ULONG, OVERLAPPED *, void *);
    /* These three are NULL on Wine. Wine 8.0 exports the names, but a call ends the program. */
    ULONG(WINAPI *SendResponseEntityBody)
    (HANDLE, HTTP_REQUEST_ID, ULONG, USHORT, HTTP_DATA_CHUNK *, ULONG *, void *, ULONG, OVERLAPPED *, void *);
    ULONG(WINAPI *CancelHttpRequest)(HANDLE, HTTP_REQUEST_ID, OVERLAPPED *);
    ULONG(WINAPI *ShutdownRequestQueue)(HANDLE);
    BOOL(WINAPI *CancelIoEx)(HANDLE, OVERLAPPED *); /* of kernel32.dll */
} ls_httpsys_api;

/* Load httpapi.dll, which then stays loaded, and fill the table. LS_OK; LS_ENOTSUP: the system has no such DLL, or it
 * lacks functions of version 2 (Windows Vista). */
int ls_httpsys_api_load(ls_httpsys_api *out);

/* Write one line about the Windows error code of a failed registration of `url`, with the remedy if there is one. */
void ls_httpsys_explain(const char *url, ULONG error, char *message, size_t message_bytes);

#endif
