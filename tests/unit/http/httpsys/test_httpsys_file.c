/* test_httpsys_file.c - responses through http.sys whose bodies are ranges of files. */
#include "httpsys_fixture.h"

static wchar_t path[MAX_PATH];

/* A file of ten bytes that is deleted when it is closed. */
static ls_shared_file *ten_bytes(void)
{
    wchar_t dir[MAX_PATH];
    ls_shared_file *file;
    ls_file_info info = {.type = LS_FILE_REGULAR, .bytes = 10};
    BY_HANDLE_FILE_INFORMATION found;
    DWORD n;
    assert_true(GetTempPathW(MAX_PATH, dir) > 0 && GetTempFileNameW(dir, L"ls", 0, path) > 0);
    const HANDLE handle = CreateFileW(path, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                                      CREATE_ALWAYS, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    assert_ptr_not_equal(handle, INVALID_HANDLE_VALUE);
    assert_true(WriteFile(handle, "0123456789", 10, &n, NULL));
    assert_true(GetFileInformationByHandle(handle, &found));
    assert_int_equal(ls_shared_file_make((ls_fd)handle, &info, &file), LS_OK);
    /* the time as the module for files reads it */
    const uint64_t time = (uint64_t)found.ftLastWriteTime.dwHighDateTime << 32 | found.ftLastWriteTime.dwLowDateTime;
    const int64_t since = (int64_t)(time - UINT64_C(116444736000000000));
    file->info.modified_s = since / 10000000;
    file->info.modified_ns = (uint32_t)(since % 10000000) * 100;
    assert_true(ls_shared_file_unchanged(file));
    return file;
}

/* Respond with "<", bytes 2 to 5 of the file, "-", its last byte. */
static void send_ranges(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slices[4] = {ls_slice_static("<", 1), ls_shared_file_slice(r->file, 2, 4), ls_slice_static("-", 1),
                          ls_shared_file_slice(r->file, 9, 1)};
    r->result = ls_exchange_respond(ctx, x, slices, 4);
    fixture_end(r, ctx, x);
}

static bool handle_is_open(ls_fd fd)
{
    DWORD flags;
    return GetHandleInformation((HANDLE)fd, &flags);
}

TEST_WITH(fixture, r, the_system_reads_the_ranges, fixture_open(send_ranges, 1))
{
    r->file = ten_bytes();
    const ls_fd fd = r->file->fd;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(r->result, LS_DONE);
    expect_wire("200 OK;Content-Length: 7;Server: luaserve;;<2345-9");
    assert_int_equal(fake.last_chunk_count, 4);
    assert_int_equal(fake.last_chunks[1].DataChunkType, HttpDataChunkFromFileHandle);
    assert_int_equal(fake.last_chunks[3].DataChunkType, HttpDataChunkFromFileHandle);
    assert_int_equal(fake.buffered, 0);

    fixture_arrives(r, (fake_request){.id = 2, .verb = HttpVerbHEAD}); /* no bytes of the file */
    expect_wire("200 OK;Content-Length: 7;Server: luaserve;;");

    fake.sends_pend = true; /* the response keeps the file open */
    fixture_arrives(r, (fake_request){.id = 3});
    ls_shared_file_drop(r->file);
    assert_true(handle_is_open(fd));
    fixture_complete(r, 's', 0, 3);
    assert_false(handle_is_open(fd));
}

TEST_WITH(fixture, r, a_failed_send_drops_the_file, fixture_open(send_ranges, 1))
{
    enum { DISCONNECTED = (int)0xC000020D }; /* STATUS_CONNECTION_RESET */
    r->file = ten_bytes();
    const ls_fd fd = r->file->fd;
    fake.send_error = ERROR_CONNECTION_INVALID;
    fixture_arrives(r, (fake_request){.id = 1});
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 2});
    fixture_complete(r, 's', DISCONNECTED, 0);
    ls_shared_file_drop(r->file);
    assert_false(handle_is_open(fd));
}

TEST_WITH(fixture, r, a_changed_file_is_not_sent, fixture_open(send_ranges, 1))
{
    r->file = ten_bytes();
    r->file->info.bytes++;
    fixture_arrives(r, (fake_request){.id = 1});
    expect_calls("cancel:1 receive:0,small ");
    ls_shared_file_drop(r->file);
}

TEST_WITH(fixture, r, without_the_call_for_parts_the_bytes_are_read, fixture_make(send_ranges))
{
    r->api.SendResponseEntityBody = NULL;
    fixture_begin(r, 1, 8);
    r->file = ten_bytes();
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(r->result, LS_DONE);
    expect_wire("200 OK;Content-Length: 7;Server: luaserve;;<2345-9");
    assert_int_equal(fake.last_chunks[1].DataChunkType, HttpDataChunkFromMemory);
    ls_shared_file_drop(r->file);
}
