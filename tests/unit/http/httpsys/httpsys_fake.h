/* httpsys_fake.h - a fake of httpapi.dll for tests. Each call appends a word to `fake.calls`; the test decides when an
 * operation completes.
 *
 * The fake reads the bytes of a send when the send completes, not before: so it finds memory that is freed too
 * early. */
#ifndef LS_TESTS_HTTPSYS_FAKE_H
#define LS_TESTS_HTTPSYS_FAKE_H

#include "support.h"

#include "http/httpsys/httpsys_internal_win32.h"
#include "port/win32/iocp_internal.h"

enum { FAKE_PENDING_MAX = 64, FAKE_TEXT_MAX = 1 << 20 };

typedef struct fake_operation {
    char kind; /* 'r'eceive, 'b'ody, 's'end; 0: the entry is free */
    OVERLAPPED *overlapped;
    HTTP_REQUEST_ID id;
    void *buffer;
    ULONG size;
    USHORT chunk_count;
    HTTP_DATA_CHUNK *chunks;
} fake_operation;

typedef struct fake_system {
    HANDLE queue;
    ls_port *port;
    char calls[8192]; /* words, each followed by a space */
    char *wire;       /* sent bytes: heads as "200 OK;Name: value;...;;", and bodies */
    size_t wire_len;
    fake_operation pending[FAKE_PENDING_MAX];
    bool one_url_a_group;
    ULONG add_error;     /* the result of the next AddUrlToUrlGroup */
    ULONG send_error;    /* the next send fails at once with this error */
    bool sends_pend;     /* sends stay pending; otherwise they succeed at once */
    const char *body;    /* body receives return it at once, up to each '|'; "": the end; NULL: they stay pending */
    ULONG receive_error; /* the next receive fails at once with this error */
    int receives_inline; /* this number of receives complete at once, with requests 100, 101, ... */
    int groups;
    HTTP_URL_GROUP_ID full; /* the group that has a URL */
    ULONG buffered;         /* HTTP_SEND_RESPONSE_FLAG_BUFFER_DATA of the last head */
    HTTP_DATA_CHUNK last_chunks[64];
    unsigned last_chunk_count;
} fake_system;

static fake_system fake;

__attribute__((format(printf, 1, 2))) static void fake_note(const char *format, ...)
{
    const size_t at = strlen(fake.calls);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fake.calls + at, sizeof fake.calls - at, format, args);
    va_end(args);
    strncat(fake.calls, " ", sizeof fake.calls - strlen(fake.calls) - 1);
}

/* Check the calls since the last check. */
static inline void expect_calls(const char *expected)
{
    assert_string_equal(fake.calls, expected);
    fake.calls[0] = '\0';
}

/* Check the bytes sent since the last check. */
static inline void expect_wire(const char *expected)
{
    assert_int_equal(fake.wire_len, strlen(expected));
    assert_memory_equal(fake.wire, expected, fake.wire_len);
    fake.wire_len = 0;
}

static inline void wire_add(const void *bytes, size_t len)
{
    assert_true(fake.wire_len + len < FAKE_TEXT_MAX);
    memcpy(fake.wire + fake.wire_len, bytes, len);
    fake.wire_len += len;
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

typedef struct fake_request {
    HTTP_REQUEST_ID id;
    HTTP_VERB verb;
    const char *target, *length; /* Content-Length, or NULL */
    bool chunked, has_body, http10, http2, closes, keeps;
    bool more_data; /* the head does not fit into the buffer */
} fake_request;

static inline PCSTR fake_text(char **to, const char *text)
{
    const size_t len = strlen(text);
    memcpy(*to, text, len + 1);
    *to += len + 1;
    return *to - len - 1;
}

static inline void fake_known(HTTP_REQUEST *request, char **to, HTTP_HEADER_ID id, const char *value)
{
    request->Headers.KnownHeaders[id] = (HTTP_KNOWN_HEADER){(USHORT)strlen(value), fake_text(to, value)};
}

/* Write the request as http.sys does. Returns its length. */
static inline uint32_t fake_fill(HTTP_REQUEST *request, ULONG size, fake_request given)
{
    const char *target = given.target != NULL ? given.target : "/";
    char *to = (char *)(request + 1);
    memset((void *)request, 0, sizeof *request);
    request->RequestId = given.id;
    request->Verb = given.verb != 0 ? given.verb : HttpVerbGET;
    request->Version = given.http2 ? (HTTP_VERSION){2, 0} : (HTTP_VERSION){1, given.http10 ? 0 : 1};
    request->pRawUrl = fake_text(&to, target);
    request->RawUrlLength = (USHORT)strlen(target);
    if (given.has_body) request->Flags = HTTP_REQUEST_FLAG_MORE_ENTITY_BODY_EXISTS;
    fake_known(request, &to, HttpHeaderHost, "h:80");
    if (given.closes || given.keeps)
        fake_known(request, &to, HttpHeaderConnection, given.keeps ? "keep-alive" : "close");
    if (given.length != NULL) fake_known(request, &to, HttpHeaderContentLength, given.length);
    if (given.chunked) fake_known(request, &to, HttpHeaderTransferEncoding, "chunked");
    assert_true((ULONG)(to - (char *)request) <= size);
    return (uint32_t)(to - (char *)request);
}

/* ---- the functions ------------------------------------------------------------------------------------------ */

static ULONG WINAPI fake_Initialize(HTTPAPI_VERSION version, ULONG flags, void *reserved)
{
    assert_int_equal(version.HttpApiMajorVersion, 2);
    assert_int_equal(flags, HTTP_INITIALIZE_SERVER);
    assert_null(reserved);
    fake_note("init");
    return NO_ERROR;
}

static ULONG WINAPI fake_Terminate(ULONG flags, void *reserved)
{
    assert_int_equal(flags, HTTP_INITIALIZE_SERVER);
    assert_null(reserved);
    fake_note("term");
    return NO_ERROR;
}

static ULONG WINAPI fake_CreateServerSession(HTTPAPI_VERSION version, HTTP_SERVER_SESSION_ID *out, ULONG reserved)
{
    assert_int_equal(version.HttpApiMajorVersion + reserved, 2);
    *out = 77;
    fake_note("session");
    return NO_ERROR;
}

static ULONG WINAPI fake_CloseServerSession(HTTP_SERVER_SESSION_ID id)
{
    assert_int_equal(id, 77);
    fake_note("-session");
    return NO_ERROR;
}

static ULONG WINAPI fake_SetServerSessionProperty(HTTP_SERVER_SESSION_ID id, HTTP_SERVER_PROPERTY property,
                                                  void *value, ULONG size)
{
    const HTTP_TIMEOUT_LIMIT_INFO *limits = value;
    assert_int_equal(id, 77);
    assert_int_equal(property, HttpServerTimeoutsProperty);
    assert_int_equal(size, sizeof *limits);
    fake_note("timeouts:%d,%d,%d", limits->HeaderWait, limits->IdleConnection, limits->EntityBody);
    return NO_ERROR;
}

static ULONG WINAPI fake_CreateUrlGroup(HTTP_SERVER_SESSION_ID session, HTTP_URL_GROUP_ID *out, ULONG reserved)
{
    assert_int_equal(session + reserved, 77);
    *out = (HTTP_URL_GROUP_ID)++fake.groups;
    fake_note("group%d", fake.groups);
    return NO_ERROR;
}

static ULONG WINAPI fake_CloseUrlGroup(HTTP_URL_GROUP_ID group)
{
    fake_note("-group%d", (int)group);
    return NO_ERROR;
}

static ULONG WINAPI fake_SetUrlGroupProperty(HTTP_URL_GROUP_ID group, HTTP_SERVER_PROPERTY property, void *value,
                                             ULONG size)
{
    const HTTP_BINDING_INFO *binding = value;
    assert_int_equal(property, HttpServerBindingProperty);
    assert_int_equal(size, sizeof *binding);
    assert_ptr_equal(binding->RequestQueueHandle, fake.queue);
    assert_int_equal(group, fake.groups);
    return NO_ERROR;
}

static ULONG WINAPI fake_AddUrlToUrlGroup(HTTP_URL_GROUP_ID group, PCWSTR url, HTTP_URL_CONTEXT context,
                                          ULONG reserved)
{
    const ULONG error = fake.add_error;
    assert_int_equal(context + reserved, 0);
    if (fake.one_url_a_group && group == fake.full) return ERROR_CALL_NOT_IMPLEMENTED;
    fake_note("add%d:%ls", (int)group, url);
    fake.add_error = NO_ERROR;
    if (error == NO_ERROR) fake.full = group;
    return error;
}

static ULONG WINAPI fake_RemoveUrlFromUrlGroup(HTTP_URL_GROUP_ID group, PCWSTR url, ULONG flags)
{
    assert_int_equal(flags, 0);
    fake_note("-add%d:%ls", (int)group, url);
    return NO_ERROR;
}

/* The queue is a pipe: it can be bound to a completion port, and no operation completes on it. */
static ULONG WINAPI fake_CreateRequestQueue(HTTPAPI_VERSION version, PCWSTR name, SECURITY_ATTRIBUTES *security,
                                            ULONG flags, HANDLE *out)
{
    static int made;
    wchar_t path[64];
    assert_int_equal(version.HttpApiMajorVersion + flags, 2);
    assert_null(name);
    assert_null(security);
    (void)swprintf(path, sizeof path / sizeof *path, L"\\\\.\\pipe\\luaserve-%lu-%d", GetCurrentProcessId(), ++made);
    fake.queue = CreateNamedPipeW(path, PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED, PIPE_TYPE_BYTE, 1, 64, 64, 0, NULL);
    assert_ptr_not_equal(fake.queue, INVALID_HANDLE_VALUE);
    *out = fake.queue;
    fake_note("queue");
    return NO_ERROR;
}

static ULONG WINAPI fake_CloseRequestQueue(HANDLE queue)
{
    assert_ptr_equal(queue, fake.queue);
    assert_true(CloseHandle(queue));
    fake_note("-queue");
    return NO_ERROR;
}

static inline fake_operation *fake_pend(char kind, HTTP_REQUEST_ID id, OVERLAPPED *overlapped)
{
    assert_non_null(overlapped);
    for (int i = 0; i < FAKE_PENDING_MAX; i++) {
        if (fake.pending[i].kind != 0) continue;
        fake.pending[i] = (fake_operation){.kind = kind, .id = id, .overlapped = overlapped};
        return &fake.pending[i];
    }
    fail_msg("too many operations");
    return NULL;
}

static ULONG WINAPI fake_ReceiveHttpRequest(HANDLE queue, HTTP_REQUEST_ID id, ULONG flags, HTTP_REQUEST *buffer,
                                            ULONG size, ULONG *returned, OVERLAPPED *overlapped)
{
    const ULONG error = fake.receive_error;
    assert_ptr_equal(queue, fake.queue);
    assert_int_equal(flags, 0);
    assert_null(returned); /* as the reference requires for a call with an OVERLAPPED */
    fake_note("receive:%d,%s", (int)id, size > LS_BLOCK_SMALL ? "large" : "small");
    fake.receive_error = NO_ERROR;
    if (error != NO_ERROR) return error;
    if (fake.receives_inline > 0) {
        overlapped->Internal = 0;
        overlapped->InternalHigh =
            fake_fill(buffer, size, (fake_request){.id = 99 + (unsigned)fake.receives_inline--});
        return NO_ERROR;
    }
    fake_operation *op = fake_pend('r', id, overlapped);
    op->buffer = buffer;
    op->size = size;
    return ERROR_IO_PENDING;
}

static ULONG WINAPI fake_ReceiveRequestEntityBody(HANDLE queue, HTTP_REQUEST_ID id, ULONG flags, void *buffer,
                                                  ULONG size, ULONG *returned, OVERLAPPED *overlapped)
{
    assert_ptr_equal(queue, fake.queue);
    assert_int_equal(flags, 0);
    assert_null(returned);
    fake_note("body:%d", (int)id);
    if (fake.body == NULL) {
        fake_operation *op = fake_pend('b', id, overlapped);
        op->buffer = buffer;
        op->size = size;
        return ERROR_IO_PENDING;
    }
    const size_t len = strcspn(fake.body, "|");
    if (len == 0) return ERROR_HANDLE_EOF;
    assert_true(len <= size);
    memcpy(buffer, fake.body, len);
    fake.body += len + (fake.body[len] == '|');
    overlapped->Internal = 0;
    overlapped->InternalHigh = len;
    return NO_ERROR;
}

static inline void wire_chunks(const HTTP_DATA_CHUNK *chunks, USHORT count)
{
    for (USHORT i = 0; i < count; i++) {
        if (chunks[i].DataChunkType == HttpDataChunkFromFileHandle) { /* as http.sys does, with offsets */
            char bytes[64];
            OVERLAPPED at = {.Offset = chunks[i].FromFileHandle.ByteRange.StartingOffset.LowPart};
            DWORD n = 0;
            assert_true(chunks[i].FromFileHandle.ByteRange.Length.QuadPart <= sizeof bytes);
            assert_true(ReadFile(chunks[i].FromFileHandle.FileHandle, bytes,
                                 chunks[i].FromFileHandle.ByteRange.Length.LowPart, &n, &at));
            assert_int_equal(n, chunks[i].FromFileHandle.ByteRange.Length.QuadPart);
            wire_add(bytes, n);
            continue;
        }
        assert_int_equal(chunks[i].DataChunkType, HttpDataChunkFromMemory);
        wire_add(chunks[i].FromMemory.pBuffer, chunks[i].FromMemory.BufferLength);
    }
}

static inline ULONG fake_send(HTTP_REQUEST_ID id, USHORT count, HTTP_DATA_CHUNK *chunks, OVERLAPPED *overlapped)
{
    const ULONG error = fake.send_error;
    fake.send_error = NO_ERROR;
    if (error != NO_ERROR) return error;
    assert_true(count <= 64);
    fake.last_chunk_count = count;
    if (count > 0) memcpy(fake.last_chunks, chunks, count * sizeof *chunks);
    if (fake.sends_pend) {
        fake_operation *op = fake_pend('s', id, overlapped);
        op->chunk_count = count;
        op->chunks = chunks;
        return ERROR_IO_PENDING;
    }
    wire_chunks(chunks, count);
    overlapped->Internal = 0;
    overlapped->InternalHigh = 1;
    return NO_ERROR;
}

static inline const char *flags_text(ULONG flags)
{
    flags &= ~(ULONG)HTTP_SEND_RESPONSE_FLAG_BUFFER_DATA;
    return flags == HTTP_SEND_RESPONSE_FLAG_MORE_DATA    ? "more"
           : flags == HTTP_SEND_RESPONSE_FLAG_DISCONNECT ? "close"
           : flags == 0                                  ? "end"
                                                         : "?";
}

static ULONG WINAPI fake_SendHttpResponse(HANDLE queue, HTTP_REQUEST_ID id, ULONG flags, HTTP_RESPONSE *response,
                                          void *policy, ULONG *sent, void *reserved1, ULONG reserved2,
                                          OVERLAPPED *overlapped, void *log)
{
    static const struct {
        HTTP_HEADER_ID id;
        const char *name;
    } names[] = {
        /* clang-format off */
        {HttpHeaderConnection, "Connection"}, {HttpHeaderTransferEncoding, "Transfer-Encoding"},
        {HttpHeaderContentLength, "Content-Length"}, {HttpHeaderContentType, "Content-Type"},
        {HttpHeaderLocation, "Location"}, {HttpHeaderServer, "Server"}, {HttpHeaderSetCookie, "Set-Cookie"},
        {HttpHeaderTrailer, "Trailer"},
        /* clang-format on */
    };
    char line[1024];
    assert_ptr_equal(queue, fake.queue);
    assert_null(policy);
    assert_null(sent);
    assert_null(reserved1);
    assert_int_equal(reserved2, 0);
    assert_null(log);
    assert_int_equal(response->Version.MajorVersion, 1);
    fake.buffered = flags & HTTP_SEND_RESPONSE_FLAG_BUFFER_DATA;
    fake_note("send:%d,%s", (int)id, flags_text(flags));
    wire_add(line, (size_t)snprintf(line, sizeof line, "%d %.*s;", response->StatusCode, response->ReasonLength,
                                    response->pReason));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const HTTP_KNOWN_HEADER *known = &response->Headers.KnownHeaders[names[i].id];
        if (known->pRawValue == NULL) continue;
        wire_add(line, (size_t)snprintf(line, sizeof line, "%s: %.*s;", names[i].name, known->RawValueLength,
                                        known->pRawValue));
    }
    for (unsigned i = 0; i < response->Headers.UnknownHeaderCount; i++) {
        const HTTP_UNKNOWN_HEADER *unknown = &response->Headers.pUnknownHeaders[i];
        wire_add(line, (size_t)snprintf(line, sizeof line, "%.*s: %.*s;", unknown->NameLength, unknown->pName,
                                        unknown->RawValueLength, unknown->pRawValue));
    }
    wire_add(";", 1);
    return fake_send(id, response->EntityChunkCount, response->pEntityChunks, overlapped);
}

static ULONG WINAPI fake_SendResponseEntityBody(HANDLE queue, HTTP_REQUEST_ID id, ULONG flags, USHORT count,
                                                HTTP_DATA_CHUNK *chunks, ULONG *sent, void *reserved1, ULONG reserved2,
                                                OVERLAPPED *overlapped, void *log)
{
    assert_ptr_equal(queue, fake.queue);
    assert_null(sent);
    assert_null(reserved1);
    assert_int_equal(reserved2, 0);
    assert_null(log);
    /* The same for all calls of a response (HttpSendHttpResponse, Flags). */
    assert_int_equal(flags & HTTP_SEND_RESPONSE_FLAG_BUFFER_DATA, fake.buffered);
    fake_note("entity:%d,%s", (int)id, flags_text(flags));
    return fake_send(id, count, chunks, overlapped);
}

static ULONG WINAPI fake_CancelHttpRequest(HANDLE queue, HTTP_REQUEST_ID id, OVERLAPPED *overlapped)
{
    assert_ptr_equal(queue, fake.queue);
    assert_null(overlapped);
    fake_note("cancel:%d", (int)id);
    return NO_ERROR;
}

static ULONG WINAPI fake_ShutdownRequestQueue(HANDLE queue)
{
    assert_ptr_equal(queue, fake.queue);
    fake_note("shutdown");
    return NO_ERROR;
}

/* Queue the packet of an operation as the system does. */
static inline void fake_complete(fake_operation *op, NTSTATUS status, uint32_t bytes)
{
    OVERLAPPED *const overlapped = op->overlapped;
    if (op->kind == 's' && status == 0) wire_chunks(op->chunks, op->chunk_count);
    memset(op, 0, sizeof *op);
    overlapped->Internal = (ULONG_PTR)(ULONG)status;
    overlapped->InternalHigh = bytes;
    assert_true(PostQueuedCompletionStatus(fake.port->iocp, bytes, KEY_HANDLE, overlapped));
}

static BOOL WINAPI fake_CancelIoEx(HANDLE queue, OVERLAPPED *overlapped)
{
    enum { CANCELLED = (int)0xC0000120 };
    assert_ptr_equal(queue, fake.queue);
    for (int i = 0; i < FAKE_PENDING_MAX; i++) {
        fake_operation *op = &fake.pending[i];
        if (op->kind == 0 || op->overlapped != overlapped) continue;
        fake_note("stop:%c", op->kind);
        fake_complete(op, CANCELLED, 0);
        return TRUE;
    }
    SetLastError(ERROR_NOT_FOUND);
    return FALSE;
}

static const ls_httpsys_api fake_api = {.Initialize = fake_Initialize,
                                        .Terminate = fake_Terminate,
                                        .CreateServerSession = fake_CreateServerSession,
                                        .CloseServerSession = fake_CloseServerSession,
                                        .SetServerSessionProperty = fake_SetServerSessionProperty,
                                        .CreateUrlGroup = fake_CreateUrlGroup,
                                        .CloseUrlGroup = fake_CloseUrlGroup,
                                        .SetUrlGroupProperty = fake_SetUrlGroupProperty,
                                        .AddUrlToUrlGroup = fake_AddUrlToUrlGroup,
                                        .RemoveUrlFromUrlGroup = fake_RemoveUrlFromUrlGroup,
                                        .CreateRequestQueue = fake_CreateRequestQueue,
                                        .CloseRequestQueue = fake_CloseRequestQueue,
                                        .ReceiveHttpRequest = fake_ReceiveHttpRequest,
                                        .ReceiveRequestEntityBody = fake_ReceiveRequestEntityBody,
                                        .SendHttpResponse = fake_SendHttpResponse,
                                        .SendResponseEntityBody = fake_SendResponseEntityBody,
                                        .CancelHttpRequest = fake_CancelHttpRequest,
                                        .ShutdownRequestQueue = fake_ShutdownRequestQueue,
                                        .CancelIoEx = fake_CancelIoEx};

/* The oldest pending operation of that kind. Without one the test fails. */
static inline fake_operation *fake_find(char kind)
{
    for (int i = 0; i < FAKE_PENDING_MAX; i++)
        if (fake.pending[i].kind == kind) return &fake.pending[i];
    fail_msg("no operation of kind %c is pending", kind);
    return NULL;
}

static inline unsigned fake_count(char kind)
{
    unsigned count = 0;
    for (int i = 0; i < FAKE_PENDING_MAX; i++) count += fake.pending[i].kind == kind;
    return count;
}

/* Complete one of the receives with this request. */
static inline void fake_arrives(fake_request given)
{
    enum { BUFFER_OVERFLOW = (int)0x80000005 };
    fake_operation *op = fake_find('r');
    HTTP_REQUEST *request = op->buffer;
    const uint32_t bytes = fake_fill(request, op->size, given);
    if (given.more_data)
        fake_complete(op, BUFFER_OVERFLOW, 5000);
    else
        fake_complete(op, 0, bytes);
}

#endif
