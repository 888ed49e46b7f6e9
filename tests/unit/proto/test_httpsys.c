/* test_httpsys.c - the http.sys engine against functions of the test's own: which calls it makes, in which order, with what. */
#include "httpsys_fixture.h"

/* ---- handlers ------------------------------------------------------------------------------------------------------ */

static void hello(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("hello", 5);
    x->type = "text/plain";
    assert_int_equal(x->transport->respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

static void nothing(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture_end(r, ctx, x);
}

static void waits(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ > 0) hello(r, ctx, x);
}

/* Read all of the body, then answer with it. */
static void echo(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    int err;
    while ((err = x->transport->read(ctx, x, &part)) == LS_DONE && part.len > 0) {
        memcpy(r->body + r->body_len, part.ptr, part.len);
        r->body_len += part.len;
        ls_slice_drop(&part);
    }
    if (err == LS_PENDING) return;
    r->told = err;
    ls_slice slice = ls_slice_static(r->body, r->body_len);
    if (err == LS_DONE) (void)x->transport->respond(ctx, x, &slice, 1);
    fixture_end(r, ctx, x);
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static void opens_in_order_and_closes_in_reverse(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(hello);
    r->config.head_ms_max = 1500;
    r->config.idle_ms_max = 1;
    r->config.body_grace_ms = 100000000;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0https://a.example:443/b/\0", 2, 8, message), LS_OK);
    fake_calls("init session timeouts:2,1,65535 queue group1 add1:http://+:80/ add1:https://a.example:443/b/ ");
    ls_httpsys_close(r->http);
    fake_calls("-add1:http://+:80/ -add1:https://a.example:443/b/ -group1 -queue -session term ");
    fixture_free(r);
}

static void a_group_for_each_url_where_one_has_room_for_one(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(hello);
    fake.one_url_a_group = true;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0http://+:81/\0", 2, 8, message), LS_OK);
    fake_calls("init session timeouts:10,75,10 queue group1 add1:http://+:80/ group2 add2:http://+:81/ ");
    ls_httpsys_close(r->http);
    fake_calls("-add1:http://+:80/ -add2:http://+:81/ -group1 -group2 -queue -session term ");
    fixture_free(r);
}

static void a_refused_url_says_why_and_leaves_nothing_open(void **state)
{
    static const struct {
        ULONG error;
        int code;
        const char *says;
    } cases[] = {{ERROR_ACCESS_DENIED, LS_EACCES, "netsh http add urlacl url=http://+:80/ user="},
                 {ERROR_ACCESS_DENIED, LS_EACCES, "access denied (error 5)"},
                 {ERROR_ALREADY_EXISTS, LS_EEXIST, "registered already (error 183)"},
                 {ERROR_SHARING_VIOLATION, LS_EACCES, "listens on that port (error 32)"},
                 {ERROR_INVALID_PARAMETER, LS_EINVAL, "invalid URL (error 87), the form is http://host:port/path/"},
                 {ERROR_BAD_NET_NAME, LS_ESYS, "(error 67)"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[512];
        fixture *r = fixture_make(hello);
        fake.add_error = cases[i].error;
        assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 2, 8, message), cases[i].code);
        assert_non_null(strstr(message, "http://+:80/"));
        assert_non_null(strstr(message, cases[i].says));
        fake_calls("init session timeouts:10,75,10 queue group1 add1:http://+:80/ -group1 -queue -session term ");
        fixture_free(r);
    }
}

static void a_second_url_that_is_refused_takes_the_first_away(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(hello);
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0\xff\0", 2, 8, message), LS_EINVAL);
    assert_non_null(strstr(message, "not valid UTF-8"));
    fake_calls("init session timeouts:10,75,10 queue group1 add1:http://+:80/ -add1:http://+:80/ -group1 -queue "
               "-session term ");
    fixture_free(r);
}

static void more_urls_than_there_is_room_for(void **state)
{
    (void)state;
    char message[512], urls[256] = "";
    size_t at = 0;
    fixture *r = fixture_make(hello);
    for (int i = 0; i <= LS_HTTPSYS_URLS_MAX; i++) at += (size_t)sprintf(urls + at, "http://a:%d/", i + 1) + 1;
    assert_int_equal(fixture_open_urls(r, urls, 2, 8, message), LS_ELIMIT);
    assert_string_equal(message, "more than 16 URLs");
    fixture_free(r);
}

/* ---- requests and answers -------------------------------------------------------------------------------------------- */

static void a_request_is_answered_and_the_receive_posted_again(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 4);
    fixture_arrives(r, (fake_request){.id = 9});
    fake_calls("send:9,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;hello");
    assert_int_equal(fake_count('r'), 4);
    ls_http1_stats stats;
    ls_httpsys_stat(r->http, &stats);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.responses, 1);
    assert_int_equal(stats.open, 0);
    fixture_close(r);
}

static void a_client_that_announces_its_last_request(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fixture_arrives(r, (fake_request){.id = 1, .closes = true});
    fake_calls("send:1,close receive:0,small ");
    fake_wire("200 OK;Connection: close;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;hello");
    fixture_close(r);
}

static void the_receive_does_not_wait_for_the_send(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    fixture_arrives(r, (fake_request){.id = 2});
    fake_calls("send:1,end receive:0,small send:2,end receive:0,small ");
    fake_complete(fake_find('s'), 0, 1);
    fake_complete(fake_find('s'), 0, 1);
    fixture_pump(r);
    assert_int_equal(fake_count('s'), 0);
    fixture_close(r);
}

static void fields(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    static const char *const lines[][2] = {{"Set-Cookie", "a=1"}, {"set-cookie", "b=2"}, {"Location", "/x"},
                                           {"X-One", "1"},        {"X-Two", ""},         {"X-3", "3"},
                                           {"X-4", "4"},          {"X-5", "5"},          {"Server", "mine"}};
    x->status = 302;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(
            ls_exchange_header(ctx, x, lines[i][0], strlen(lines[i][0]), lines[i][1], strlen(lines[i][1]), false),
            LS_OK);
    assert_int_equal(ls_exchange_header(ctx, x, "Connection", 10, "close", 5, false), LS_OK);
    assert_int_equal(x->transport->respond(ctx, x, NULL, 0), LS_DONE);
    fixture_end(r, ctx, x);
}

static void fields_go_where_the_system_knows_them(void **state)
{
    (void)state;
    fixture *r = fixture_open(fields, 1);
    fixture_arrives(r, (fake_request){.id = 1});
    fake_calls("send:1,close receive:0,small ");
    fake_wire("302 Found;Connection: close;Content-Length: 0;Location: /x;Server: mine;Set-Cookie: a=1;"
              "set-cookie: b=2;X-One: 1;X-Two: ;X-3: 3;X-4: 4;X-5: 5;;");
    fixture_close(r);
}

static void no_content(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("never", 5);
    x->status = 204;
    x->type = "text/plain";
    assert_int_equal(x->transport->respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

static void what_has_no_body_gets_none(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbHEAD});
    fake_wire("200 OK;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;");
    r->run = no_content;
    fixture_arrives(r, (fake_request){.id = 2});
    fake_wire("204 No Content;Server: luaserve;;");
    fixture_close(r);
}

/* Pool memory, and borrowed bytes from LS_HTTPSYS_COPY_BYTES on, go out from where they lie. */
static void lies(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) {
        ls_slice slices[2] = {ls_slice_of(r->block, 0, 512), ls_slice_static(r->body, LS_HTTPSYS_COPY_BYTES)};
        assert_int_equal(x->transport->respond(ctx, x, slices, 2), LS_DONE);
        assert_int_equal(x->transport->wait_sent(ctx, x), LS_PENDING);
        return;
    }
    r->told = x->transport->wait_sent(ctx, x);
    memset(r->body, 'z', sizeof r->body); /* they may go now */
    fixture_end(r, ctx, x);
}

static void nothing_is_copied(void **state)
{
    (void)state;
    fixture *r = fixture_open(lies, 1);
    assert_non_null(r->block = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL));
    memset(r->block->data, 'b', 512);
    memset(r->body, 'a', sizeof r->body);
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(fake.last_chunk_count, 2);
    assert_ptr_equal(fake.last_chunks[0].FromMemory.pBuffer, r->block->data);
    assert_ptr_equal(fake.last_chunks[1].FromMemory.pBuffer, r->body);
    fake_complete(fake_find('s'), 0, 1);
    fixture_pump(r);
    assert_int_equal(r->told, LS_DONE);
    assert_null(r->x);
    assert_int_equal(fake.wire[fake.wire_len - 1], 'a');
    ls_block_drop(r->block);
    fixture_close(r);
}

static void many(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slices[20];
    for (int i = 0; i < 20; i++) slices[i] = ls_slice_of(r->block, (size_t)i, 1);
    assert_int_equal(x->transport->respond(ctx, x, slices, 20), LS_DONE);
    fixture_end(r, ctx, x);
}

static void many_slices_go_in_several_calls(void **state)
{
    (void)state;
    for (int pend = 0; pend < 2; pend++) {
        fixture *r = fixture_open(many, 1);
        assert_non_null(r->block = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL));
        memcpy(r->block->data, "abcdefghijklmnopqrst", 20);
        fake.sends_pend = pend == 1;
        fixture_arrives(r, (fake_request){.id = 1});
        for (int i = 0; pend == 1 && i < 3; i++) {
            fake_complete(fake_find('s'), 0, 1);
            fixture_pump(r);
        }
        fake_calls(pend == 1 ? "send:1,more receive:0,small entity:1,more entity:1,end "
                             : "send:1,more entity:1,more entity:1,end receive:0,small ");
        fake_wire("200 OK;Content-Length: 20;Server: luaserve;;abcdefghijklmnopqrst");
        ls_block_drop(r->block);
        fixture_close(r);
    }
}

/* ---- answers in parts ------------------------------------------------------------------------------------------------- */

static void parts(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice one[2] = {ls_slice_static("ab", 2), ls_slice_static("c", 1)},
             two = ls_slice_static("0123456789abcdef", 16);
    if (r->step++ == 0) {
        assert_int_equal(x->transport->write(ctx, x, one, 2), LS_DONE);
        return; /* what was written leaves now */
    }
    assert_int_equal(x->transport->write(ctx, x, &two, 1), LS_DONE);
    assert_int_equal(x->transport->finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

static void parts_go_in_chunks(void **state)
{
    (void)state;
    fixture *r = fixture_open(parts, 1);
    fixture_arrives(r, (fake_request){.id = 1});
    fake_calls("send:1,more receive:0,small ");
    fake_wire("200 OK;Transfer-Encoding: chunked;Server: luaserve;;3\r\nabc\r\n");
    fixture_resume(r);
    fake_calls("entity:1,end ");
    fake_wire("10\r\n0123456789abcdef\r\n0\r\n\r\n");
    fixture_close(r);
}

static void head_first(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) {
        assert_int_equal(x->transport->write(ctx, x, NULL, 0), LS_DONE);
        return;
    }
    assert_int_equal(x->transport->finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

static void a_head_goes_before_there_are_parts(void **state)
{
    (void)state;
    fixture *r = fixture_open(head_first, 1);
    fixture_arrives(r, (fake_request){.id = 1});
    fake_calls("send:1,more receive:0,small ");
    fake_wire("200 OK;Transfer-Encoding: chunked;Server: luaserve;;");
    fixture_resume(r);
    fake_calls("entity:1,end ");
    fake_wire("0\r\n\r\n");
    fixture_close(r);
}

static void for_http_1_0_the_end_of_the_connection_ends_them(void **state)
{
    (void)state;
    fixture *r = fixture_open(parts, 1);
    fixture_arrives(r, (fake_request){.id = 1, .old = true});
    fixture_resume(r);
    fake_calls("send:1,more receive:0,small entity:1,close ");
    fake_wire("200 OK;Connection: close;Server: luaserve;;abc0123456789abcdef");
    fixture_close(r);
}

static void for_http_2_the_system_frames_them(void **state)
{
    (void)state;
    fixture *r = fixture_open(parts, 1);
    fixture_arrives(r, (fake_request){.id = 1, .newer = true});
    fixture_resume(r);
    fake_calls("send:1,more receive:0,small entity:1,close ");
    fake_wire("200 OK;Connection: close;Server: luaserve;;abc0123456789abcdef");
    r->run = hello;
    fixture_arrives(r, (fake_request){.id = 2, .newer = true});
    fake_calls("send:2,end receive:0,small ");
    fixture_close(r);
}

static void announced(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    x->length = 19;
    parts(r, ctx, x);
}

static void an_announced_length_needs_no_chunks(void **state)
{
    (void)state;
    fixture *r = fixture_open(announced, 1);
    fixture_arrives(r, (fake_request){.id = 1});
    fixture_resume(r);
    fake_calls("send:1,more receive:0,small entity:1,end ");
    fake_wire("200 OK;Content-Length: 19;Server: luaserve;;abc0123456789abcdef");
    fixture_close(r);
}

/* A file of ten bytes that goes when it is closed. */
static ls_fd ten_bytes(void)
{
    wchar_t dir[MAX_PATH], path[MAX_PATH];
    DWORD n;
    assert_true(GetTempPathW(MAX_PATH, dir) > 0 && GetTempFileNameW(dir, L"ls", 0, path) > 0);
    const HANDLE file =
        CreateFileW(path, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    assert_ptr_not_equal(file, INVALID_HANDLE_VALUE);
    assert_true(WriteFile(file, "0123456789", 10, &n, NULL));
    return (ls_fd)file;
}

static void file(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) {
        x->length = 10;
        assert_int_equal(x->transport->write(ctx, x, NULL, 0), LS_DONE);
        r->told = x->transport->write_file(ctx, x, r->file);
        if (r->told == LS_PENDING) return;
    }
    if (r->told >= 0) assert_int_equal(x->transport->finish(ctx, x), x->error);
    fixture_end(r, ctx, x);
}

static void a_file_is_left_to_the_system(void **state)
{
    (void)state;
    fixture *r = fixture_open(file, 1);
    r->file = ten_bytes();
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(r->told, LS_DONE);
    fake_calls("send:1,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 10;Server: luaserve;;0123456789");
    assert_int_equal(fake.last_chunk_count, 1);
    assert_int_equal(fake.last_chunks[0].DataChunkType, HttpDataChunkFromFileHandle);

    /* The file is its own until it has left. */
    r->step = 0;
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 2});
    assert_int_equal(r->told, LS_PENDING);
    assert_int_equal(r->step, 1);
    fake_complete(fake_find('s'), 0, 1);
    fixture_pump(r);
    assert_int_equal(r->step, 2);
    fake_calls("send:2,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 10;Server: luaserve;;0123456789");
    fake.sends_pend = false;

    /* Nothing of it behind a head alone. */
    r->step = 0;
    fixture_arrives(r, (fake_request){.id = 3, .verb = HttpVerbHEAD});
    fake_calls("send:3,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 10;Server: luaserve;;");
    CloseHandle((HANDLE)r->file);
    fixture_close(r);
}

/* A read that is pending wakes whoever waits, and thus who sends a file: to that one, all that is queued is small. */
static void file_beside_a_body(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    if (r->step == 0) {
        assert_int_equal(x->transport->read(ctx, x, &part), LS_PENDING);
        file(r, ctx, x);
        return;
    }
    assert_int_equal(x->transport->flush(ctx, x), LS_DONE);
    assert_int_equal(x->transport->finish(ctx, x), LS_DONE);
    CloseHandle((HANDLE)r->file);
    fixture_end(r, ctx, x);
}

static void a_file_is_sent_whoever_closes_it(void **state)
{
    DWORD flags;
    (void)state;
    fixture *r = fixture_open(file_beside_a_body, 1);
    r->file = ten_bytes();
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "5", .has_body = true});
    assert_int_equal(fake_count('s'), 1);
    fake_operation *op = fake_find('b');
    memcpy(op->buffer, "hello", 5);
    fake_complete(op, 0, 5);
    fixture_pump(r);
    assert_null(r->x);
    fake_complete(fake_find('s'), 0, 1);
    fixture_pump(r);
    fake_calls("body:1 send:1,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 10;Server: luaserve;;0123456789");
    /* Nothing is left open. */
    assert_false(GetHandleInformation(fake.last_chunks[0].FromFileHandle.FileHandle, &flags));
    fixture_close(r);
}

static void a_file_whose_client_has_gone(void **state)
{
    enum { DISCONNECTED = (int)0xC000020D }; /* STATUS_CONNECTION_RESET */
    DWORD flags;
    (void)state;
    fixture *r = fixture_open(file, 1);
    r->file = ten_bytes();
    fake.send_error = ERROR_CONNECTION_INVALID;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_true(r->told < 0);
    fake_calls("send:1,end cancel:1 receive:0,small ");
    r->step = 0;
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 2});
    fake_complete(fake_find('s'), DISCONNECTED, 0);
    fixture_pump(r);
    assert_int_equal(r->step, 2);
    fake_calls("send:2,end receive:0,small cancel:2 ");
    CloseHandle((HANDLE)r->file);
    assert_false(GetHandleInformation(fake.last_chunks[0].FromFileHandle.FileHandle, &flags));
    fixture_close(r);
}

static void files_are_read_where_the_system_takes_none(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(file);
    r->api.SendResponseEntityBody = NULL;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 1, 8, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    r->file = ten_bytes();
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(r->told, LS_ENOTSUP);
    CloseHandle((HANDLE)r->file);
    fixture_close(r);
}

static void too_short(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("abc", 3);
    x->length = 4;
    assert_int_equal(x->transport->write(ctx, x, &slice, 1), LS_DONE);
    assert_int_equal(x->transport->finish(ctx, x), LS_EMSGSIZE);
    fixture_end(r, ctx, x);
}

static void an_answer_that_is_not_whole_is_cut_off(void **state)
{
    (void)state;
    fixture *r = fixture_open(too_short, 1);
    fixture_arrives(r, (fake_request){.id = 5});
    fake_calls("cancel:5 receive:0,small ");
    fixture_close(r);
}

/* Write until it has to wait, three times. */
static void floods(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    int err = LS_DONE;
    while (err == LS_DONE && r->told++ < 100) {
        ls_slice slice = ls_slice_static(r->body, 8192);
        err = x->transport->write(ctx, x, &slice, 1);
    }
    if (err == LS_PENDING && r->step++ < 2) return;
    assert_int_equal(err, LS_PENDING);
    assert_int_equal(x->transport->finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

static void who_writes_waits_for_a_slow_client(void **state)
{
    (void)state;
    fixture *r = fixture_open(floods, 1);
    r->config.write_bytes_high = 65536;
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_in_range(r->told, 8, 9); /* 64 KiB are queued */
    assert_int_equal(r->step, 1);
    for (int i = 0; i < 40 && fake_count('s') > 0; i++) {
        assert_int_equal(fake_count('s'), 1);
        fake_complete(fake_find('s'), 0, 1);
        fixture_pump(r);
    }
    assert_int_equal(r->step, 3);
    assert_in_range(r->told, 24, 27);
    assert_null(r->x);
    fixture_close(r);
}

/* A system without answers in parts (Wine). */
static void as_a_whole_where_there_are_no_parts(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(parts);
    r->api.SendResponseEntityBody = NULL;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 1, 8, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    fake.calls[0] = '\0';
    fixture_arrives(r, (fake_request){.id = 1});
    fake_calls("receive:0,small ");
    fixture_resume(r);
    fake_calls("send:1,end ");
    fake_wire("200 OK;Content-Length: 19;Server: luaserve;;abc0123456789abcdef");
    r->run = many;
    assert_non_null(r->block = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL));
    memset(r->block->data, 'x', 20);
    fixture_arrives(r, (fake_request){.id = 2});
    fake_calls("send:2,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 20;Server: luaserve;;xxxxxxxxxxxxxxxxxxxx");
    ls_block_drop(r->block);
    fixture_close(r);
}

/* ---- clients that go, handlers that do not answer ----------------------------------------------------------------------- */

static void not_answering_closes_the_connection(void **state)
{
    (void)state;
    fixture *r = fixture_open(nothing, 1);
    fixture_arrives(r, (fake_request){.id = 3});
    fake_calls("cancel:3 receive:0,small ");
    fake_wire("");
    fixture_close(r);
}

static void where_nothing_can_be_cancelled_it_is_a_500(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(nothing);
    r->api.CancelHttpRequest = NULL;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 1, 8, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    fake.calls[0] = '\0';
    fixture_arrives(r, (fake_request){.id = 3});
    fake_calls("send:3,close receive:0,small ");
    fake_wire("500 Internal Server Error;Connection: close;Content-Length: 22;Content-Type: text/plain; charset=utf-8;"
              "Server: luaserve;;Internal Server Error\n");
    fixture_close(r);
}

static void a_send_that_fails_at_once(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fake.send_error = ERROR_CONNECTION_INVALID;
    fixture_arrives(r, (fake_request){.id = 3});
    fake_calls("send:3,end cancel:3 receive:0,small ");
    fixture_close(r);
}

static void a_send_that_fails_later_is_told(void **state)
{
    enum { DISCONNECTED = (int)0xC000020D }; /* STATUS_CONNECTION_RESET */
    (void)state;
    fixture *r = fixture_open(lies, 1);
    assert_non_null(r->block = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL));
    memset(r->block->data, 'b', 512);
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    fake.calls[0] = '\0';
    fake_complete(fake_find('s'), DISCONNECTED, 0);
    fixture_pump(r);
    assert_true(r->told < 0);
    fake_calls("cancel:1 ");
    ls_block_drop(r->block);
    fixture_close(r);
}

/* ---- bodies ------------------------------------------------------------------------------------------------------------- */

static void a_body_is_read_to_its_end(void **state)
{
    (void)state;
    fixture *r = fixture_open(echo, 1);
    fake.body = "one|two|three|";
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .chunked = true, .has_body = true});
    fake_calls("body:1 body:1 body:1 body:1 send:1,end receive:0,small ");
    fake_wire("200 OK;Content-Length: 11;Server: luaserve;;onetwothree");
    fake.body = "onetwo"; /* with a length, its end needs no call */
    fixture_arrives(r, (fake_request){.id = 2, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    fake_calls("body:2 send:2,end receive:0,small ");
    fixture_close(r);
}

static void a_body_that_comes_slowly(void **state)
{
    enum { END_OF_FILE = (int)0xC0000011 };
    (void)state;
    fixture *r = fixture_open(echo, 1);
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .chunked = true, .has_body = true});
    for (int i = 0; i < 3; i++) {
        fake_operation *op = fake_find('b');
        assert_int_equal(fake_count('b'), 1); /* no more than one ahead */
        memcpy(op->buffer, "abc", 3);
        fake_complete(op, 0, 3);
        fixture_pump(r);
    }
    fake_complete(fake_find('b'), END_OF_FILE, 0);
    fixture_pump(r);
    fake_wire("200 OK;Content-Length: 9;Server: luaserve;;abcabcabc");
    fixture_close(r);
}

static void a_body_that_ends_with_its_client(void **state)
{
    (void)state;
    fixture *r = fixture_open(echo, 1);
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    fake_complete(fake_find('b'), (NTSTATUS)0xC000020D, 0);
    fixture_pump(r);
    assert_int_equal(r->told, LS_ERESET);
    fake_calls("body:1 receive:0,small cancel:1 ");
    fixture_close(r);
}

static void a_body_that_is_too_large(void **state)
{
    (void)state;
    fixture *r = fixture_make(echo);
    char message[512];
    r->config.body_bytes_max = 5;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 1, 8, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    fake.calls[0] = '\0';
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    assert_int_equal(r->told, LS_EMSGSIZE);
    fake_calls("cancel:1 receive:0,small "); /* known before anything was received */
    fake.body = "one|two|";
    fixture_arrives(r, (fake_request){.id = 2, .verb = HttpVerbPOST, .chunked = true, .has_body = true});
    assert_int_equal(r->told, LS_EMSGSIZE);
    fake_calls("body:2 body:2 cancel:2 receive:0,small ");
    fixture_close(r);
}

/* Somebody waits for the body when the answer is complete: that receive ends first. */
static void answers_without_the_body(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    if (r->step++ == 0) {
        assert_int_equal(x->transport->read(ctx, x, &part), LS_PENDING);
        return;
    }
    if (r->step == 2) hello(r, ctx, x);
}

static void a_body_that_nobody_waits_for_any_more(void **state)
{
    (void)state;
    fixture *r = fixture_open(answers_without_the_body, 1);
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    fake.calls[0] = '\0';
    fixture_resume(r);
    fake_calls("stop:b send:1,end ");
    fixture_close(r);
}

/* ---- receives --------------------------------------------------------------------------------------------------------- */

static void a_large_head_is_received_again(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    fake_calls("receive:8,large ");
    fixture_arrives(r, (fake_request){.id = 8});
    fake_calls("send:8,end receive:0,small ");
    fixture_close(r);
}

static void a_head_that_fits_nothing_is_refused(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    fake_calls("receive:8,large send:8,close receive:0,large ");
    fake_wire("431 Request Header Fields Too Large;Connection: close;Content-Length: 56;Content-Type: text/plain; "
              "charset=utf-8;Server: luaserve;;Request Header Fields Too Large: request head too large\n");
    assert_int_equal(r->starts, 0);
    fixture_close(r);
}

static void a_client_that_went_before_its_large_head_was_received(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fake.receive_error = ERROR_CONNECTION_INVALID;
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    fake_calls("receive:8,large receive:0,large ");
    fixture_close(r);
}

static void limits_of_the_head_hold(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(hello);
    r->config.head.target_bytes_max = 16;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 1, 8, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    fixture_arrives(r, (fake_request){.id = 1, .target = "/456789012345678"});
    fixture_arrives(r, (fake_request){.id = 2, .target = "/456789012345678x"});
    assert_int_equal(r->starts, 1);
    assert_non_null(strstr(fake.calls, "send:2,close"));
    ls_http1_stats stats;
    ls_httpsys_stat(r->http, &stats);
    assert_int_equal(stats.refused, 1);
    fixture_close(r);
}

static void a_refused_receive_is_tried_again(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fake.receive_error = ERROR_NO_SYSTEM_RESOURCES;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(fake_count('r'), 0);
    ls_packet packet;
    assert_int_equal(ls_port_wait(r->port, &r->ctx, &packet, 1, 5000), 1); /* the timer's */
    ls_packet_dispatch(&r->ctx, &packet);
    assert_int_equal(fake_count('r'), 1);
    fixture_close(r);
}

/* They are served at once, but not all of them in one go. */
static void receives_that_complete_at_once(void **state)
{
    enum { RUN_MAX = 64, MANY = 150 };
    ls_packet packet;
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fake.receives_inline = MANY;
    fake_arrives((fake_request){.id = 1});
    for (int packets = 1, starts = 0; packets <= 3; packets++) {
        assert_int_equal(ls_port_wait(r->port, &r->ctx, &packet, 1, 0), 1);
        ls_packet_dispatch(&r->ctx, &packet);
        assert_in_range(r->starts - starts, 1, RUN_MAX + 1);
        starts = r->starts;
    }
    assert_int_equal(r->starts, MANY + 1);
    assert_int_equal(fake_count('r'), 1);
    assert_int_equal(r->ctx.stats.recv_inline, MANY);
    fixture_close(r);
}

static void connect_is_refused(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbCONNECT, .target = "a.example:443"});
    fake_calls("send:1,close receive:0,small ");
    assert_int_equal(r->starts, 0);
    assert_memory_equal(fake.wire, "501 Not Implemented;", 20);
    fixture_close(r);
}

static void past_the_limit_no_receive_is_posted(void **state)
{
    (void)state;
    char message[512];
    fixture *r = fixture_make(waits);
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 1, 1, message), LS_OK);
    ls_httpsys_start(&r->ctx, r->http);
    fake.calls[0] = '\0';
    fixture_arrives(r, (fake_request){.id = 1});
    fake_calls("");
    fixture_resume(r);
    fake_calls("send:1,end receive:0,small ");
    fixture_close(r);
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */

static void a_drain_answers_what_is_under_way_first(void **state)
{
    (void)state;
    fixture *r = fixture_open(waits, 2);
    fixture_arrives(r, (fake_request){.id = 1});
    fake.calls[0] = '\0';
    assert_int_equal(ls_httpsys_drain(r->http), 3);
    fake_calls("-add1:http://+:80/ -group1 ");
    assert_int_equal(ls_httpsys_drain(r->http), 3);
    fake_calls("");
    fixture_resume(r);
    fake_calls("send:1,close ");
    assert_int_equal(ls_httpsys_drain(r->http), 2);
    fake_calls("stop:r stop:r ");
    fixture_pump(r);
    assert_int_equal(ls_httpsys_drain(r->http), 0);
    fake_calls("shutdown ");
    fixture_close(r);
}

/* It came in the moment in which the receives were ended. */
static void a_request_that_slips_in_is_answered(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 2);
    fake_arrives((fake_request){.id = 1});
    assert_int_equal(ls_httpsys_drain(r->http), 2);
    fake.calls[0] = '\0';
    fixture_pump(r);
    fake_calls("send:1,close ");
    assert_int_equal(ls_httpsys_drain(r->http), 0);
    fixture_close(r);
}

static void an_abort_shuts_the_queue_down(void **state)
{
    (void)state;
    fixture *r = fixture_open(waits, 1);
    fixture_arrives(r, (fake_request){.id = 1});
    fake.calls[0] = '\0';
    ls_httpsys_abort(r->http);
    fake_calls("stop:r shutdown ");
    fixture_resume(r);
    fixture_close(r);
}

static void every_memory_that_is_missing(void **state)
{
    (void)state;
    fixture *r = fixture_open(hello, 1);
    ls_block *held[512];
    unsigned count = 0;
    while (count < 512 && (held[count] = ls_block_get(r->ctx.pool, LS_BLOCK_LARGE)) != NULL) count++;
    ls_block *small[64];
    unsigned smalls = 0;
    while (smalls < 64 && (small[smalls] = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL)) != NULL) smalls++;
    fixture_arrives(r, (fake_request){.id = 1}); /* no memory for an exchange; the buffer that it had is there again */
    fake_calls("cancel:1 receive:0,small ");
    while (smalls > 0) ls_block_drop(small[--smalls]);
    while (count > 0) ls_block_drop(held[--count]);
    fixture_arrives(r, (fake_request){.id = 2});
    fake_calls("send:2,end receive:0,small ");
    fixture_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_in_order_and_closes_in_reverse),
        cmocka_unit_test(a_group_for_each_url_where_one_has_room_for_one),
        cmocka_unit_test(a_refused_url_says_why_and_leaves_nothing_open),
        cmocka_unit_test(a_second_url_that_is_refused_takes_the_first_away),
        cmocka_unit_test(more_urls_than_there_is_room_for),
        cmocka_unit_test(a_request_is_answered_and_the_receive_posted_again),
        cmocka_unit_test(a_client_that_announces_its_last_request),
        cmocka_unit_test(the_receive_does_not_wait_for_the_send),
        cmocka_unit_test(fields_go_where_the_system_knows_them),
        cmocka_unit_test(what_has_no_body_gets_none),
        cmocka_unit_test(nothing_is_copied),
        cmocka_unit_test(many_slices_go_in_several_calls),
        cmocka_unit_test(parts_go_in_chunks),
        cmocka_unit_test(a_head_goes_before_there_are_parts),
        cmocka_unit_test(for_http_1_0_the_end_of_the_connection_ends_them),
        cmocka_unit_test(for_http_2_the_system_frames_them),
        cmocka_unit_test(an_announced_length_needs_no_chunks),
        cmocka_unit_test(a_file_is_left_to_the_system),
        cmocka_unit_test(a_file_is_sent_whoever_closes_it),
        cmocka_unit_test(a_file_whose_client_has_gone),
        cmocka_unit_test(files_are_read_where_the_system_takes_none),
        cmocka_unit_test(an_answer_that_is_not_whole_is_cut_off),
        cmocka_unit_test(who_writes_waits_for_a_slow_client),
        cmocka_unit_test(as_a_whole_where_there_are_no_parts),
        cmocka_unit_test(not_answering_closes_the_connection),
        cmocka_unit_test(where_nothing_can_be_cancelled_it_is_a_500),
        cmocka_unit_test(a_send_that_fails_at_once),
        cmocka_unit_test(a_send_that_fails_later_is_told),
        cmocka_unit_test(a_body_is_read_to_its_end),
        cmocka_unit_test(a_body_that_comes_slowly),
        cmocka_unit_test(a_body_that_ends_with_its_client),
        cmocka_unit_test(a_body_that_is_too_large),
        cmocka_unit_test(a_body_that_nobody_waits_for_any_more),
        cmocka_unit_test(a_large_head_is_received_again),
        cmocka_unit_test(a_head_that_fits_nothing_is_refused),
        cmocka_unit_test(a_client_that_went_before_its_large_head_was_received),
        cmocka_unit_test(limits_of_the_head_hold),
        cmocka_unit_test(a_refused_receive_is_tried_again),
        cmocka_unit_test(receives_that_complete_at_once),
        cmocka_unit_test(connect_is_refused),
        cmocka_unit_test(past_the_limit_no_receive_is_posted),
        cmocka_unit_test(a_drain_answers_what_is_under_way_first),
        cmocka_unit_test(a_request_that_slips_in_is_answered),
        cmocka_unit_test(an_abort_shuts_the_queue_down),
        cmocka_unit_test(every_memory_that_is_missing),
    };
    return cmocka_run_group_tests_name("proto/httpsys", tests, NULL, NULL);
}
