/* test_httpsys_file.c - responses through http.sys whose body is a file. */
#include "httpsys_fixture.h"

/* A file of ten bytes that is deleted when it is closed. */
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

static void send_file(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) {
        x->length = 10;
        assert_int_equal(x->transport->write(ctx, x, NULL, 0), LS_DONE);
        r->result = x->transport->write_file(ctx, x, r->file);
        if (r->result == LS_PENDING) return;
    }
    if (r->result >= 0) assert_int_equal(x->transport->finish(ctx, x), x->error);
    fixture_end(r, ctx, x);
}

static void the_system_reads_the_file(void **state)
{
    (void)state;
    fixture *r = fixture_open(send_file, 1);
    r->file = ten_bytes();
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(r->result, LS_DONE);
    expect_calls("send:1,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 10;Server: luaserve;;0123456789");
    assert_int_equal(fake.last_chunk_count, 1);
    assert_int_equal(fake.last_chunks[0].DataChunkType, HttpDataChunkFromFileHandle);

    /* The handler waits until the file is sent. */
    r->step = 0;
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 2});
    assert_int_equal(r->result, LS_PENDING);
    assert_int_equal(r->step, 1);
    fixture_complete(r, 's', 0, 1);
    assert_int_equal(r->step, 2);
    expect_calls("send:2,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 10;Server: luaserve;;0123456789");
    fake.sends_pend = false;

    /* No bytes of the file in the response to HEAD. */
    r->step = 0;
    fixture_arrives(r, (fake_request){.id = 3, .verb = HttpVerbHEAD});
    expect_calls("send:3,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 10;Server: luaserve;;");
    CloseHandle((HANDLE)r->file);
    fixture_close(r);
}

/* A pending read wakes the handler while the file is still being sent. It closes its own handle of the file. */
static void send_file_and_read(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    if (r->step == 0) {
        assert_int_equal(x->transport->read(ctx, x, &part), LS_PENDING);
        send_file(r, ctx, x);
        return;
    }
    assert_int_equal(x->transport->flush(ctx, x), LS_DONE);
    assert_int_equal(x->transport->finish(ctx, x), LS_DONE);
    CloseHandle((HANDLE)r->file);
    fixture_end(r, ctx, x);
}

static void the_handler_may_close_its_handle(void **state)
{
    DWORD flags;
    (void)state;
    fixture *r = fixture_open(send_file_and_read, 1);
    r->file = ten_bytes();
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "5", .has_body = true});
    assert_int_equal(fake_count('s'), 1);
    fixture_body_arrives(r, "hello");
    assert_null(r->x);
    fixture_complete(r, 's', 0, 1);
    expect_calls("body:1 send:1,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 10;Server: luaserve;;0123456789");
    assert_int_equal(fake.buffered, 0);
    /* The duplicated handle is closed. */
    assert_false(GetHandleInformation(fake.last_chunks[0].FromFileHandle.FileHandle, &flags));
    fixture_close(r);
}

static void a_failed_send_closes_the_handle(void **state)
{
    enum { DISCONNECTED = (int)0xC000020D }; /* STATUS_CONNECTION_RESET */
    DWORD flags;
    (void)state;
    fixture *r = fixture_open(send_file, 1);
    r->file = ten_bytes();
    fake.send_error = ERROR_CONNECTION_INVALID;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_true(r->result < 0);
    expect_calls("send:1,end cancel:1 receive:0,small ");
    r->step = 0;
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 2});
    fixture_complete(r, 's', DISCONNECTED, 0);
    assert_int_equal(r->step, 2);
    expect_calls("send:2,end receive:0,small cancel:2 ");
    CloseHandle((HANDLE)r->file);
    assert_false(GetHandleInformation(fake.last_chunks[0].FromFileHandle.FileHandle, &flags));
    fixture_close(r);
}

static void without_the_call_for_parts_files_are_not_supported(void **state)
{
    (void)state;
    fixture *r = fixture_make(send_file);
    r->api.SendResponseEntityBody = NULL;
    fixture_begin(r, 1, 8);
    r->file = ten_bytes();
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(r->result, LS_ENOTSUP);
    CloseHandle((HANDLE)r->file);
    fixture_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_reads_the_file),
        cmocka_unit_test(the_handler_may_close_its_handle),
        cmocka_unit_test(a_failed_send_closes_the_handle),
        cmocka_unit_test(without_the_call_for_parts_files_are_not_supported),
    };
    return cmocka_run_group_tests_name("proto/httpsys_file", tests, NULL, NULL);
}
