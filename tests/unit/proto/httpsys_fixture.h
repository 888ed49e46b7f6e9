/* httpsys_fixture.h - the http.sys engine for a test: the functions of httpapi.dll replaced by ones that note each call as a word
 * in `fake.calls` and complete when the test says so, a handler in C, packets taken by hand.
 *
 * The bytes of a send are read from where they lie when it completes, not before: who gives them back too early is found out. */
#ifndef LS_TESTS_HTTPSYS_FIXTURE_H
#define LS_TESTS_HTTPSYS_FIXTURE_H

#include "support.h"

#include <stdio.h>

#include "port/win32/iocp_internal.h"
#include "proto/httpsys_internal_win32.h"
#include "sched/actor.h"

enum { FAKE_PENDING_MAX = 64, FAKE_TEXT_MAX = 1 << 20 };

typedef struct fake_operation {
    char kind; /* 'r'eceive, 'b'ody, 's'end; 0: the place is free */
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
    char calls[8192]; /* words, each ended by a space */
    char *wire;       /* what was sent: heads as "200 OK;Name: value;...;;", and bodies */
    size_t wire_len;
    fake_operation pending[FAKE_PENDING_MAX];
    bool one_url_a_group;
    ULONG add_error;     /* the next AddUrlToUrlGroup */
    ULONG send_error;    /* the next send fails with it at once */
    bool sends_pend;     /* sends stay pending; else they succeed at once */
    const char *body;    /* what body receives give at once: each up to '|', "" is the end; NULL: they pend */
    ULONG receive_error; /* the next receive fails with it at once */
    int receives_inline; /* that many complete at once, with requests 100, 101, ... */
    int groups;
    HTTP_URL_GROUP_ID full; /* has a URL */
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

/* The calls so far are these; then there are none. */
static inline void fake_calls(const char *expected)
{
    assert_string_equal(fake.calls, expected);
    fake.calls[0] = '\0';
}

static inline void fake_wire(const char *expected)
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

/* ---- requests ------------------------------------------------------------------------------------------------------- */

typedef struct fake_request {
    HTTP_REQUEST_ID id;
    HTTP_VERB verb;
    const char *target, *length; /* Content-Length; NULL: none */
    bool chunked, has_body, old, newer, closes, more_data;
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

/* Write it as http.sys does. Returns its bytes. */
static inline uint32_t fake_fill(HTTP_REQUEST *request, ULONG size, fake_request given)
{
    const char *target = given.target != NULL ? given.target : "/";
    char *to = (char *)(request + 1);
    memset((void *)request, 0, sizeof *request);
    request->RequestId = given.id;
    request->Verb = given.verb != 0 ? given.verb : HttpVerbGET;
    request->Version = given.newer ? (HTTP_VERSION){2, 0} : (HTTP_VERSION){1, given.old ? 0 : 1};
    request->pRawUrl = fake_text(&to, target);
    request->RawUrlLength = (USHORT)strlen(target);
    if (given.has_body) request->Flags = HTTP_REQUEST_FLAG_MORE_ENTITY_BODY_EXISTS;
    fake_known(request, &to, HttpHeaderHost, "h:80");
    if (given.closes) fake_known(request, &to, HttpHeaderConnection, "close");
    if (given.length != NULL) fake_known(request, &to, HttpHeaderContentLength, given.length);
    if (given.chunked) fake_known(request, &to, HttpHeaderTransferEncoding, "chunked");
    assert_true((ULONG)(to - (char *)request) <= size);
    return (uint32_t)(to - (char *)request);
}

/* ---- the functions ------------------------------------------------------------------------------------------------ */

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

/* A pipe: it can be bound to a completion port, and nothing ever completes on it by itself. */
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
    assert_null(returned); /* as the reference asks, with an OVERLAPPED */
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
        if (chunks[i].DataChunkType == HttpDataChunkFromFileHandle) { /* as http.sys does, by offsets of its own */
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
    } names[] = {{HttpHeaderConnection, "Connection"},
                 {HttpHeaderTransferEncoding, "Transfer-Encoding"},
                 {HttpHeaderContentLength, "Content-Length"},
                 {HttpHeaderContentType, "Content-Type"},
                 {HttpHeaderLocation, "Location"},
                 {HttpHeaderServer, "Server"},
                 {HttpHeaderSetCookie, "Set-Cookie"}};
    char line[1024];
    assert_ptr_equal(queue, fake.queue);
    assert_null(policy);
    assert_null(sent);
    assert_null(reserved1);
    assert_int_equal(reserved2, 0);
    assert_null(log);
    assert_int_equal(response->Version.MajorVersion, 1);
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

/* The packet of an operation, as the system would queue it. */
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

/* The pending operation of that kind that is the oldest, which must be there. */
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

/* A client sent it: one of the receives completes. */
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

/* ---- the engine ------------------------------------------------------------------------------------------------------ */

typedef struct fixture fixture;
typedef void fixture_run(fixture *r, ls_thread_ctx *ctx, ls_exchange *x);

struct fixture {
    ls_port *port;
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_http_config config;
    ls_http_handler handler;
    ls_httpsys_api api;
    ls_httpsys *http;
    ls_actor actor;
    fixture_run *run; /* the handler: when a request starts, and whenever it is woken */
    ls_exchange *x;
    int starts, step, told;
    ls_fd file;
    ls_op resume;
    char body[65536];
    size_t body_len;
    ls_block *block; /* a handler's own */
};

static inline void fixture_call(ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *r = x->task;
    r->run(r, ctx, x);
}

static inline void fixture_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *r = LS_CONTAINER(handler, fixture, handler);
    assert_true(ls_actor_try_enter(&r->actor, ctx));
    x->actor = &r->actor;
    x->task = r;
    x->wake = fixture_call;
    r->starts++;
    r->step = 0;
    r->body_len = 0;
    r->x = x;
    r->run(r, ctx, x);
}

static inline void fixture_end(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    r->x = NULL;
    x->transport->release(ctx, x);
}

static inline void fixture_pump(fixture *r)
{
    ls_packet packet;
    while (ls_port_wait(r->port, &r->ctx, &packet, 1, 0) > 0) {
        ls_packet_dispatch(&r->ctx, &packet);
        assert_null(r->ctx.inside);
    }
}

/* Everything but the engine itself. */
static inline fixture *fixture_make(fixture_run *run)
{
    const ls_port_options options = {.sockets_max = 8};
    ls_pool *pool;
    fixture *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(ls_port_open(&options, &r->port), LS_OK);
    assert_int_equal(ls_pools_open(16u << 20, &r->pools), LS_OK);
    assert_int_equal(ls_pool_open(r->pools, &pool), LS_OK);
    ls_pool_enter(pool);
    ls_thread_ctx_init(&r->ctx, r->port, pool, 0);
    ls_http_config_defaults(&r->config);
    r->api = fake_api;
    r->handler.start = fixture_start;
    r->run = run;
    ls_actor_init(&r->actor);
    memset(&fake, 0, sizeof fake);
    fake.port = r->port;
    fake.wire = malloc(FAKE_TEXT_MAX);
    assert_non_null(fake.wire);
    return r;
}

static inline int fixture_open_urls(fixture *r, const char *urls, unsigned receives, uint32_t requests_max,
                                    char message[512])
{
    const ls_httpsys_options options = {.urls = urls,
                                        .config = &r->config,
                                        .handler = &r->handler,
                                        .threads = 1,
                                        .receives = receives,
                                        .requests_max = requests_max};
    return ls_httpsys_open_with(&r->api, r->port, &options, &r->http, message, 512);
}

/* Serving, with `receives` posted. */
static inline fixture *fixture_open(fixture_run *run, unsigned receives)
{
    char message[512];
    fixture *r = fixture_make(run);
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", receives, 64, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    assert_int_equal(fake_count('r'), receives);
    fake.calls[0] = '\0';
    return r;
}

static inline void fixture_arrives(fixture *r, fake_request given)
{
    fake_arrives(given);
    fixture_pump(r);
}

static inline void fixture_free(fixture *r)
{
    ls_pools_stats stats;
    ls_packet packet;
    assert_int_equal(ls_port_wait(r->port, &r->ctx, &packet, 1, 0), 0);
    ls_pools_stat(r->pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
    ls_port_close(r->port);
    ls_pool_close(r->ctx.pool);
    ls_pools_close(r->pools);
    free(fake.wire);
    free(r);
}

/* Drain, and everything must be given back. */
static inline void fixture_close(fixture *r)
{
    for (int i = 0; i < 10 && ls_httpsys_drain(r->http) > 0; i++) fixture_pump(r);
    assert_int_equal(ls_httpsys_drain(r->http), 0);
    for (int i = 0; i < FAKE_PENDING_MAX; i++) assert_int_equal(fake.pending[i].kind, 0);
    ls_httpsys_close(r->http);
    fixture_free(r);
}

static inline void fixture_resumed(ls_thread_ctx *ctx, ls_op *op)
{
    fixture *r = LS_CONTAINER(op, fixture, resume);
    r->run(r, ctx, r->x);
}

/* Go on with a handler that waits for something of its own. */
static inline void fixture_resume(fixture *r)
{
    r->resume = (ls_op){.done = fixture_resumed, .actor = &r->actor};
    assert_int_equal(ls_port_post(r->port, &r->resume, NULL, 0), LS_OK);
    fixture_pump(r);
}

#endif
