/* test_send_file_win32.c - how a send takes the bytes of a file: with TransmitFile on a server edition of Windows,
 * with blocks that are read and sent on a client edition. TransmitFile, WSASend and the edition are replaced. */
#define _GNU_SOURCE
#include "port_fixture.h"

#include <mswsock.h>

#include "base/os/thread.h"

static struct {
    bool server;
    int transmits, sends;    /* calls */
    unsigned buffers;        /* of the last WSASend */
    DWORD first, last_bytes; /* of the last WSASend: bytes of the first and of the last buffer */
    int send_error;          /* of the next WSASend */
    bool lacks, is_unix;     /* the provider has no TransmitFile; the socket is a Unix socket */
} sys;

extern int(WSAAPI *__real___imp_WSAIoctl)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                          LPWSAOVERLAPPED_COMPLETION_ROUTINE);
extern int(WSAAPI *__real___imp_WSASend)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED,
                                         LPWSAOVERLAPPED_COMPLETION_ROUTINE);

extern int(WSAAPI *__real___imp_getsockopt)(SOCKET, int, int, char *, int *);

static LPFN_TRANSMITFILE real_transmit;

static BOOL WINAPI fake_transmit(SOCKET fd, HANDLE file, DWORD bytes, DWORD each, LPOVERLAPPED overlapped,
                                 LPTRANSMIT_FILE_BUFFERS around, DWORD flags)
{
    sys.transmits++;
    return real_transmit(fd, file, bytes, each, overlapped, around, flags);
}

static int WSAAPI fake_getsockopt(SOCKET fd, int level, int name, char *value, int *len)
{
    const int result = __real___imp_getsockopt(fd, level, name, value, len);
    if (result == 0 && name == SO_PROTOCOL_INFOW && sys.is_unix)
        ((WSAPROTOCOL_INFOW *)(void *)value)->iAddressFamily = AF_UNIX;
    return result;
}

static int WSAAPI fake_ioctl(SOCKET fd, DWORD code, LPVOID in, DWORD in_size, LPVOID out, DWORD out_size, LPDWORD got,
                             LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    static const GUID transmit = WSAID_TRANSMITFILE;
    const LPFN_TRANSMITFILE fake = fake_transmit;
    if (sys.lacks && memcmp(in, &transmit, sizeof transmit) == 0) return WSASetLastError(WSAEINVAL), SOCKET_ERROR;
    const int result = __real___imp_WSAIoctl(fd, code, in, in_size, out, out_size, got, overlapped, done);
    if (result == 0 && code == SIO_GET_EXTENSION_FUNCTION_POINTER && memcmp(in, &transmit, sizeof transmit) == 0) {
        memcpy(&real_transmit, out, sizeof real_transmit);
        memcpy(out, &fake, sizeof fake);
    }
    return result;
}

static int WSAAPI fake_send(SOCKET fd, LPWSABUF buffers, DWORD count, LPDWORD sent, DWORD flags,
                            LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    sys.sends++;
    sys.buffers = count;
    sys.first = buffers[0].len;
    sys.last_bytes = buffers[count - 1].len;
    if (sys.send_error != 0) {
        WSASetLastError(sys.send_error);
        sys.send_error = 0;
        return SOCKET_ERROR;
    }
    return __real___imp_WSASend(fd, buffers, count, sent, flags, overlapped, done);
}

/* VerifyVersionInfoW as IsWindowsServer calls it: whether this is a workstation. */
static BOOL WINAPI fake_edition(LPOSVERSIONINFOEXW about, DWORD mask, DWORDLONG conditions)
{
    assert_int_equal(mask, VER_PRODUCT_TYPE);
    assert_int_equal(about->wProductType, VER_NT_WORKSTATION);
    SetLastError(ERROR_OLD_WIN_VERSION);
    return !sys.server;
}

int(WSAAPI *__wrap___imp_WSAIoctl)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                   LPWSAOVERLAPPED_COMPLETION_ROUTINE) = fake_ioctl;
int(WSAAPI *__wrap___imp_getsockopt)(SOCKET, int, int, char *, int *) = fake_getsockopt;
int(WSAAPI *__wrap___imp_WSASend)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE) = fake_send;
BOOL(WINAPI *__wrap___imp_VerifyVersionInfoW)(LPOSVERSIONINFOEXW, DWORD, DWORDLONG) = fake_edition;

typedef struct file_place { /* a file with a pattern, and a connection */
    net_place net;
    FILE *file;
    char *bytes;
    size_t len;
    ls_sock *sock;
    int theirs;
} file_place;

static void place_open_with(file_place *place, bool server, size_t len, bool lacks, bool is_unix)
{
    int ours;
    memset(&sys, 0, sizeof sys);
    sys.server = server;
    sys.lacks = lacks;
    sys.is_unix = is_unix;
    net_place_open(&place->net);
    place->len = len;
    place->bytes = pattern(len, 7);
    place->file = tmpfile();
    assert_non_null(place->file);
    assert_int_equal(fwrite(place->bytes, 1, len, place->file), len);
    assert_int_equal(fflush(place->file), 0);
    net_tcp_pair(&ours, &place->theirs);
    place->sock = net_attach(&place->net, ours, false);
}

static void file_place_open(file_place *place, bool server, size_t len)
{
    place_open_with(place, server, len, false, false);
}

static void file_place_close(file_place *place) /* checks that no block of the pool is left */
{
    ls_sock_close(&place->net.ctx, place->sock);
    fclose(place->file);
    close(place->theirs);
    free(place->bytes);
    net_place_close(&place->net);
}

/* The peer reads while the port sends: 300 KiB are more than the socket takes. */
TEST(the_edition_decides_who_reads_the_file)
{
    enum { LEN = 300000, FROM = 1000, HEAD = 4 };
    /* A client, a server; a server where the provider lacks TransmitFile, and where it may refuse the family. */
    for (int kind = 0; kind < 4; kind++) {
        const bool server = kind == 1;
        file_place place;
        ls_op op = op_new();
        ls_thread thread;
        place_open_with(&place, kind > 0, LEN, kind == 2, kind == 3);
        net_reader r = {place.theirs, HEAD + LEN - FROM, malloc(HEAD + LEN - FROM)};
        ls_slice head[] = {ls_slice_static("he", 2), ls_slice_static("ad", 2)};
        const ls_file_range range = {fileno(place.file), FROM, LEN - FROM, NULL};
        assert_int_equal(ls_thread_start(&thread, "reader", net_reader_main, &r), LS_OK);
        const int64_t sent = ls_op_send(&place.net.ctx, place.sock, &op, head, 2, &range);
        assert_true(sent >= 0);
        if (sent == LS_PENDING) expect_packet(&place.net, &op, HEAD + LEN - FROM);
        ls_thread_join(&thread);
        assert_int_equal(atomic_load(&op.result), HEAD + LEN - FROM);
        assert_memory_equal(r.bytes, "head", HEAD);
        assert_memory_equal(r.bytes + HEAD, place.bytes + FROM, LEN - FROM);
        if (server)
            assert_in_range(sys.transmits, 1, 100);
        else
            assert_int_equal(sys.transmits, 0);
        assert_int_equal(sys.sends, server ? 1 : 5); /* the first slice, or 64 KiB of the file each */
        free(r.bytes);
        file_place_close(&place);
    }
}

/* On a client edition the slices and the first part of the file leave in one call, from a block of fitting size. */
TEST(a_small_file_leaves_with_its_head)
{
    enum { LEN = LS_BLOCK_SMALL + 1 };
    char got[4 + LEN];
    for (size_t len = LEN - 1; len <= LEN; len++) {
        file_place place;
        ls_pools_stats stats;
        ls_op op = op_new();
        file_place_open(&place, false, len);
        ls_slice head[] = {ls_slice_static("he", 2), ls_slice_static("ad", 2)};
        const ls_file_range range = {fileno(place.file), 0, len, NULL};
        if (ls_op_send(&place.net.ctx, place.sock, &op, head, 2, &range) == LS_PENDING)
            expect_packet(&place.net, &op, (int64_t)(4 + len));
        net_read(place.theirs, got, 4 + len);
        assert_memory_equal(got, "head", 4);
        assert_memory_equal(got + 4, place.bytes, len);
        assert_int_equal(sys.sends, 1);
        assert_int_equal(sys.buffers, 3);
        assert_int_equal(sys.last_bytes, len);
        ls_pools_stat(place.net.pools, &stats);
        assert_int_equal(stats.bytes_peak, len == LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        file_place_close(&place);
    }
}

/* 64 slices fill the buffers of a call; the file takes one more. With 65 slices the file waits for the second call. */
TEST(the_file_follows_the_last_slice_only)
{
    enum { SLICES = 65 };
    char got[SLICES + 3];
    for (uint16_t count = SLICES - 1; count <= SLICES; count++) {
        file_place place;
        ls_op op = op_new();
        ls_slice slices[SLICES];
        file_place_open(&place, false, 3);
        for (int i = 0; i < count; i++) slices[i] = ls_slice_static("s", 1);
        const ls_file_range range = {fileno(place.file), 0, 3, NULL};
        if (ls_op_send(&place.net.ctx, place.sock, &op, slices, count, &range) == LS_PENDING)
            expect_packet(&place.net, &op, count + 3);
        net_read(place.theirs, got, (size_t)count + 3);
        assert_memory_equal(got + count, place.bytes, 3);
        assert_int_equal(got[count - 1], 's');
        assert_int_equal(sys.sends, count < SLICES ? 1 : 2);
        assert_int_equal(sys.buffers, count < SLICES ? SLICES : 2); /* one slice and the file */
        file_place_close(&place);
    }
}

enum { SHORT_FILE = 5000 };

/* Errors leave no block behind: the file ends within the range, the pool has no block, the call is refused. */
TEST_IN(file_place, place, errors_release_the_block, false, SHORT_FILE)
{
    ls_pool *small;
    ls_pools *few;
    const ls_file_range range = {fileno(place->file), 0, SHORT_FILE, NULL},
                        past = {fileno(place->file), SHORT_FILE, 1, NULL};
    ls_op op = op_new();
    assert_int_equal(ls_op_send(&place->net.ctx, place->sock, &op, NULL, 0, &past), LS_EINVAL);
    assert_int_equal(sys.sends, 0);
    sys.send_error = WSAENOBUFS;
    assert_true(ls_op_send(&place->net.ctx, place->sock, &op, NULL, 0, &range) < 0);
    assert_int_equal(sys.sends, 1);

    ls_thread_ctx poor = place->net.ctx;
    assert_int_equal(ls_pools_open(LS_BLOCK_SMALL, &few), LS_OK);
    assert_int_equal(ls_pool_open(few, &small), LS_OK);
    ls_pool_enter(small);
    poor.pool = small;
    assert_int_equal(ls_op_send(&poor, place->sock, &op, NULL, 0, &range), LS_ENOMEM);
    assert_int_equal(sys.sends, 1);
    ls_pool_close(small);
    ls_pools_close(few);
    ls_pool_enter(place->net.ctx.pool);
}

/* A slow peer: the block of the pending call is released when its packet is taken, whether cancelled or closed. */
TEST(a_cancelled_send_releases_its_block_with_the_packet)
{
    enum { LEN = 8 << 20 };
    for (int closes = 0; closes <= 1; closes++) {
        file_place place;
        ls_pools_stats stats;
        ls_op op = op_new();
        file_place_open(&place, false, LEN);
        const ls_file_range range = {fileno(place.file), 0, LEN, NULL};
        assert_int_equal(ls_op_send(&place.net.ctx, place.sock, &op, NULL, 0, &range), LS_PENDING);
        net_quiet(&place.net, 20); /* the peer reads nothing */
        ls_pools_stat(place.net.pools, &stats);
        assert_int_equal(stats.blocks_live, 1);
        if (closes) {
            ls_sock_close(&place.net.ctx, place.sock);
            expect_packet(&place.net, &op, LS_ECANCELED);
            place.sock = net_attach(&place.net, net_tcp(), false);
        } else {
            ls_op_cancel(place.net.port, place.sock, &op);
            expect_packet(&place.net, &op, LS_ECANCELED);
        }
        ls_pools_stat(place.net.pools, &stats);
        assert_int_equal(stats.blocks_live, 0);
        file_place_close(&place);
    }
}

enum { LONG_FILE = 4 << 20 };

/* Many files to peers that read nothing do not keep one more from leaving. */
TEST_IN(file_place, place, slow_peers_do_not_stop_other_files, false, LONG_FILE)
{
    enum { SLOW = 20 };
    ls_sock *slow[SLOW];
    ls_op ops[SLOW];
    int theirs[SLOW];
    char got[3];
    const ls_file_range range = {fileno(place->file), 0, LONG_FILE, NULL}, small = {fileno(place->file), 10, 3, NULL};
    for (int i = 0; i < SLOW; i++) {
        int ours;
        net_tcp_pair(&ours, &theirs[i]);
        slow[i] = net_attach(&place->net, ours, false);
        ops[i] = op_new();
        assert_int_equal(ls_op_send(&place->net.ctx, slow[i], &ops[i], NULL, 0, &range), LS_PENDING);
    }
    ls_op op = op_new();
    if (ls_op_send(&place->net.ctx, place->sock, &op, NULL, 0, &small) == LS_PENDING)
        expect_packet(&place->net, &op, 3);
    net_read(place->theirs, got, 3);
    assert_memory_equal(got, place->bytes + 10, 3);
    for (int i = 0; i < SLOW; i++) {
        ls_sock_close(&place->net.ctx, slow[i]);
        expect_packet(&place->net, &ops[i], LS_ECANCELED);
        close(theirs[i]);
    }
}
