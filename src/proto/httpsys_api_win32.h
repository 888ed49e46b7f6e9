/* httpsys_api_win32.h - the functions of httpapi.dll as one table, so that the program runs without the DLL and a test can put
 * functions of its own there. Names, arguments and results are those of the HTTP Server API, version 2
 * (learn.microsoft.com, http.h). */
#ifndef LS_PROTO_HTTPSYS_API_WIN32_H
#define LS_PROTO_HTTPSYS_API_WIN32_H

#include "port/winsock_win32.h"
/* needs the types of the one before */
#include <http.h>
#include <stdbool.h>
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
    /* NULL where the system has none of them: Wine, of which 8.0 exports the names but ends who calls them. */
    ULONG(WINAPI *SendResponseEntityBody)
    (HANDLE, HTTP_REQUEST_ID, ULONG, USHORT, HTTP_DATA_CHUNK *, ULONG *, void *, ULONG, OVERLAPPED *, void *);
    ULONG(WINAPI *CancelHttpRequest)(HANDLE, HTTP_REQUEST_ID, OVERLAPPED *);
    ULONG(WINAPI *ShutdownRequestQueue)(HANDLE);
    BOOL(WINAPI *CancelIoEx)(HANDLE, OVERLAPPED *); /* of kernel32.dll */
} ls_httpsys_api;

/* Load httpapi.dll, which then stays, and fill the table. LS_OK or LS_ENOTSUP: there is no such DLL, or it has not all
 * that version 2 has (Windows Vista). */
int ls_httpsys_api_load(ls_httpsys_api *out);

/* What the system's `error` to registering `url` means and what can be done about it, in one line. */
void ls_httpsys_explain(const char *url, ULONG error, char *message, size_t message_bytes);

#endif
