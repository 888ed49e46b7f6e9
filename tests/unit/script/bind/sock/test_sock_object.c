/* test_sock.c - the object `sock`: results of each receive function, send, timeouts, end of stream, and
 * interference by other tasks and finalizers. */
/* sanitizers: asan; no thread starts */
#include "script/sock_fixture.h"

enum { BLOCK = LS_BLOCK_SMALL };

/* The peer sends the pieces, each received by itself, and ends its direction. It must receive `expected`. */
static void talk(const char *options, const char *serve, const char *const *pieces, const char *expected)
{
    sock_fixture fixture;
    fixture_open(&fixture, options, serve);
    const int peer = fixture_connect(&fixture);
    fixture_pump(&fixture);
    for (; *pieces != NULL; pieces++) fixture_send(&fixture, peer, *pieces);
    fixture_ends_with(&fixture, peer, expected);
    fixture_close(&fixture);
}

#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- receive
 * ----------------------------------------------------------------------------------------------------- */

TEST(receives_a_number_of_bytes)
{
    static const char serve[] = "while true do local d, e, c, part = sock:receive(4) "
                                "if not d then return sock:send(show(d, e, c, part)) end sock:send('[', d, ']') end";
    talk("", serve, PIECES("abcdefgh"), "[abcd][efgh]nil|closed|ECLOSED|");
    talk("", serve, PIECES("a", "b", "c", "d"), "[abcd]nil|closed|ECLOSED|");
    talk("", serve, PIECES("ab", "cdef", "ghi"), "[abcd][efgh]nil|closed|ECLOSED|i");
    talk("", "sock:send(show(sock:receive(0)))", PIECES("x"), "");
    talk("message_bytes_max = 5",
         "sock:send(show(sock:receive(5)), ' ', show(sock:receive(6)), ' ', show(sock:receive(1)))",
         PIECES("12345", "6"), "12345 nil|message too long|EMSGSIZE 6");
}

TEST(across_blocks)
{
    sock_fixture fixture;
    static char bytes[3 * BLOCK + 100];
    static char got[sizeof bytes];
    for (size_t n = 0; n < sizeof bytes; n++) bytes[n] = (char)('a' + n % 23);
    for (int at = -1; at <= 1; at++) { /* the receive ends before, at and behind the end of a block */
        char serve[200];
        (void)snprintf(serve, sizeof serve,
                       "local d = assert(sock:receive(%d)) sock:send(d, assert(sock:receive(%d)))", 2 * BLOCK + at,
                       (int)sizeof bytes - 2 * BLOCK - at);
        fixture_open(&fixture, "", serve);
        const int peer = fixture_connect(&fixture);
        fixture_write(&fixture, peer, bytes, BLOCK);
        fixture_write(&fixture, peer, bytes + BLOCK, BLOCK);
        fixture_write(&fixture, peer, bytes + 2 * BLOCK, sizeof bytes - 2 * BLOCK);
        assert_int_equal(fixture_read(&fixture, peer, got, sizeof got), sizeof got);
        assert_memory_equal(got, bytes, sizeof bytes);
        fixture_leave(&fixture, peer);
    }
}

/* Bytes that a peer sends one by one must not occupy one block each. */
TEST_IN(served, f, small_pieces_share_blocks, "", "sock:send(assert(sock:receive('*l')))")
{
    enum { PIECES_SENT = 3 * BLOCK, BLOCKS_MAX = 16 };
    static char got[PIECES_SENT];
    ls_pools_stats before, stats;
    fixture_pump(f);
    ls_pools_stat(f->t->pools, &before);
    for (int n = 0; n < PIECES_SENT; n++) fixture_write(f, f->peer, &(char){(char)('a' + n % 23)}, 1);
    ls_pools_stat(f->t->pools, &stats);
    assert_in_range(stats.blocks_live - before.blocks_live, 1, BLOCKS_MAX);
    fixture_send(f, f->peer, "\n");
    assert_int_equal(fixture_read(f, f->peer, got, sizeof got), sizeof got);
    for (int n = 0; n < PIECES_SENT; n++) assert_int_equal(got[n], 'a' + n % 23);
}

TEST(lines)
{
    static const char serve[] = "while true do local d, e, c, part = sock:receive('*l') "
                                "if not d then return sock:send(show(d, e, c, part)) end sock:send('[', d, ']') end";
    static const char iterate[] = "for line in sock:lines() do sock:send('[', line, ']') end sock:send(sock.ended)";
    char text[200];
    talk("", serve, PIECES("one\r\ntwo\n\n\r\na\rb\nrest"), "[one][two][][][a\rb]nil|closed|ECLOSED|rest");
    talk("", serve, PIECES("on", "e\r", "\ntwo", "\n", "\r", "\n"), "[one][two][]nil|closed|ECLOSED|");
    talk("line_bytes_max = 5", serve, PIECES("12345\n"), "[12345]nil|closed|ECLOSED|");
    talk("line_bytes_max = 5", serve, PIECES("12345", "\n"), "[12345]nil|closed|ECLOSED|");
    talk("line_bytes_max = 5", serve, PIECES("123456\n"), "nil|message too long|EMSGSIZE|nil");
    talk("line_bytes_max = 5", serve, PIECES("123456"), "nil|message too long|EMSGSIZE|nil"); /* without a line end */
    talk("line_bytes_max = 5", serve, PIECES("12345\r\n"),
         "[12345]nil|closed|ECLOSED|"); /* the line end does not count */
    talk("line_bytes_max = 5", serve, PIECES("123", "45\r", "\n1"), "[12345]nil|closed|ECLOSED|1");
    talk("line_bytes_max = 5", serve, PIECES("12345\r", "6\n"), "nil|message too long|EMSGSIZE|nil");
    talk("line_bytes_max = 5", serve, PIECES("123456\r\n"), "nil|message too long|EMSGSIZE|nil");
    talk("line_bytes_max = 5", serve, PIECES("12345\r\r\n"), "nil|message too long|EMSGSIZE|nil");
    talk("line_bytes_max = 5", "sock:receive('*l') sock:send(sock:receive(7))", PIECES("123456\n"),
         "123456\n"); /* the bytes stay */
    talk("", iterate, PIECES("a\nb", "\r\n"), "[a][b]ECLOSED");
    talk("", iterate, PIECES("a\nb", "\r\nc"), "[a][b]ETRUNCATED"); /* it may be the first half of a line */
    talk("", iterate, PIECES("a\nb\r\n\r"), "[a][b]ETRUNCATED");
    (void)snprintf(text, sizeof text, "%s sock:send(sock:receive('*a'))", iterate);
    talk("", text, PIECES("a\nlast"), "[a]ETRUNCATEDlast"); /* the bytes stay */
    talk("line_bytes_max = 2", iterate, PIECES("ab\nabc\n"), "[ab]EMSGSIZE");
}

TEST(all_until_the_end)
{
    static const char serve[] = "sock:send(show(sock:receive('*a')))";
    talk("", serve, PIECES(""), "");
    talk("", serve, PIECES("one", "two", "three"), "onetwothree");
    talk("message_bytes_max = 6", serve, PIECES("123", "456"), "123456");
    talk("message_bytes_max = 6", serve, PIECES("123", "4567"), "nil|message too long|EMSGSIZE");
}

TEST(receives_the_available_bytes)
{
    static const char serve[] = "while true do local d, e, c = sock:receiveany(%s) "
                                "if not d then return sock:send(show(d, e, c)) end sock:send('[', d, ']') end";
    char text[200];
    (void)snprintf(text, sizeof text, serve, "");
    talk("", text, PIECES("a", "bcd"), "[a][bcd]nil|closed|ECLOSED");
    (void)snprintf(text, sizeof text, serve, "2");
    talk("", text, PIECES("abcde"), "[ab][cd][e]nil|closed|ECLOSED");
}

TEST(until_a_pattern)
{
    static const char serve[] = "while true do local d, e, c, part = sock:receiveuntil('<end>') "
                                "if not d then return sock:send(show(d, e, c, part)) end sock:send('[', d, ']') end";
    static const char text[] = "abc<end>";
    for (size_t cut = 1; cut < sizeof text - 1; cut++) { /* the pattern is cut at every byte */
        char first[16], second[16];
        (void)snprintf(first, sizeof first, "%.*s", (int)cut, text);
        (void)snprintf(second, sizeof second, "%s", text + cut);
        talk("", serve, PIECES(first, second), "[abc]nil|closed|ECLOSED|");
        for (size_t again = cut + 1; again < sizeof text - 1; again++) {
            char third[16];
            (void)snprintf(second, sizeof second, "%.*s", (int)(again - cut), text + cut);
            (void)snprintf(third, sizeof third, "%s", text + again);
            talk("", serve, PIECES(first, second, third), "[abc]nil|closed|ECLOSED|");
        }
    }
    talk("", "sock:send(show(sock:receiveuntil('aab', { inclusive = true }), sock:receiveuntil('\\0')))",
         PIECES("a", "a", "a", "abrest"), "aaaab|nil|closed|ECLOSED|rest");
}

TEST(until_a_pattern_is_bounded)
{
    static const char limit[] =
        "sock:send(show(sock:receiveuntil('--', { limit = 4 })), ' ', show(sock:receiveany()))";
    static const char listener[] = "sock:send(show(sock:receiveuntil('--')))";
    static const char lengths[] =
        "local longest = ('x'):rep(1024) sock:send(show(pcall(sock.receiveuntil, sock, longest .. 'x')), ' ', "
        "#assert(sock:receiveuntil(longest, { inclusive = true })))";
    char pattern[1025] = "";
    talk("", limit, PIECES("1234--rest"), "1234 rest");
    talk("", limit, PIECES("1234", "-", "-rest"), "1234 rest");
    talk("", limit, PIECES("12345--rest"), "nil|message too long|EMSGSIZE 12345--rest"); /* the bytes stay */
    talk("", limit, PIECES("12345-"), "nil|message too long|EMSGSIZE 12345-");
    talk("", limit, PIECES("12345"), "nil|closed|ECLOSED|12345 nil|closed|ECLOSED"); /* it could have been "1234--" */
    talk("line_bytes_max = 3", listener, PIECES("123--"), "123");
    talk("line_bytes_max = 3", listener, PIECES("1234--"), "nil|message too long|EMSGSIZE");
    memset(pattern, 'x', sizeof pattern - 1);
    talk("", lengths, PIECES(pattern), "false|the pattern is longer than 1024 bytes 1024");
}

/* ---- send
 * -------------------------------------------------------------------------------------------------------- */

static uint64_t sends(const sock_fixture *fixture)
{
    const ls_thread_stats *stats = &fixture->t->ctx.stats;
    return atomic_load(&stats->send_inline) + atomic_load(&stats->send_queued);
}

TEST_IN(served, f, sends_of_one_task_are_combined, "",
        "sock:receive(1) sock:send('a', 1, 2.5, 3.0, -0.0, 1e100) sock:send({ 'b', { core.buffer('c', 'd') } }) "
        "for i = 1, 3 do sock:send(i) end is(sock.queued, 24) sock:receive(1) is(sock.queued, 0)")
{
    char got[64];
    const uint64_t before = sends(f);
    fixture_send(f, f->peer, "x");
    const size_t len = fixture_read(f, f->peer, got, 24);
    got[len] = '\0';
    assert_string_equal(got, "a12.53.0-0.01e+100bcd123");
    assert_int_equal(sends(f) - before, 1);
    fixture_ends_with(f, f->peer, "");
}

/* The peer does not read: the sender waits with a bounded queue, and continues when the peer reads. */
TEST_IN(served, f, send_waits_for_a_slow_reader, "write_bytes_high = 65536",
        "local most, b = 0, core.buffer(('b'):rep(10000)) for i = 1, 400 do assert(sock:send(b)) "
        "if sock.queued > most then most = sock.queued end end "
        "core.log('info', 'sent, at most ' .. (most <= 65536 + 10000 and 'as configured' or most))")
{
    enum { BLOCKS = 400, EACH = 10000 };
    char *got = malloc(BLOCKS * EACH + 1);
    assert_non_null(got);
    fixture_pump(f);
    assert_false(fixture_logged(f, "sent"));
    assert_int_equal(fixture_read(f, f->peer, got, BLOCKS * EACH + 1), BLOCKS * EACH);
    assert_true(fixture_logged(f, "sent, at most as configured"));
    for (int n = 0; n < BLOCKS * EACH; n++)
        if (got[n] != 'b') fail_msg("a wrong byte at %d", n);
    free(got);
}

/* A long string is sent from Lua's memory. Below the high-water mark the sender does not wait, and the string stays
 * alive until it is sent. */
TEST_IN(served, f, a_long_string_is_sent_without_a_copy, "write_bytes_high = 100000000",
        "local s = ('l'):rep(1024):rep(2 << 10) sock:receive(1) sock:send(1, { { s } }, 'end') s = nil "
        "core.log('info', sock.queued > 0 and 'queued' or 'sent') collectgarbage() collectgarbage()")
{
    enum { LEN = 2 << 20 };
    ls_pools_stats before, after;
    char *got = malloc(LEN + 4);
    assert_non_null(got);
    ls_pools_stat(f->t->pools, &before);
    fixture_send(f, f->peer, "x");
    assert_true(fixture_logged(f, "queued"));
    assert_int_equal(fixture_read(f, f->peer, got, LEN + 4), LEN + 4);
    assert_true(got[0] == '1' && memcmp(got + LEN + 1, "end", 3) == 0);
    for (int n = 1; n <= LEN; n++)
        if (got[n] != 'l') fail_msg("a wrong byte at %d", n);
    ls_pools_stat(f->t->pools, &after);
    assert_int_equal(after.bytes_copied, before.bytes_copied);
    free(got);
}

/* Strings at the limit from which they are shared, and one byte shorter. */
TEST(strings_below_the_limit_are_copied)
{
    sock_fixture fixture;
    char got[2 * LS_STRING_SHARED_MIN];
    for (size_t len = LS_STRING_SHARED_MIN - 1; len <= LS_STRING_SHARED_MIN; len++) {
        char serve[100];
        (void)snprintf(serve, sizeof serve, "sock:send(('s'):rep(%u)) sock:receive(1)", (unsigned)len);
        fixture_open(&fixture, "", serve);
        const int peer = fixture_connect(&fixture);
        assert_int_equal(fixture_read(&fixture, peer, got, len), len);
        const ls_strings *strings = &test_state(fixture.t)->strings;
        assert_int_equal(strings->free_count + strings->used, len == LS_STRING_SHARED_MIN);
        fixture_ends_with(&fixture, peer, "");
        fixture_close(&fixture);
    }
}

/* The peer does not read: at most write_bytes_high bytes and one string wait in the queue and in Lua's memory. */
TEST_IN(served, f, long_strings_wait_for_a_slow_reader, "write_bytes_high = 65536",
        "local most = 0 for i = 1, 8 do assert(sock:send(tostring(i):rep(1024):rep(1024))) "
        "if sock.queued > most then most = sock.queued end end "
        "core.log('info', most <= 65536 and 'sent' or 'queued ' .. most)")
{
    enum { LEN = 1 << 20, COUNT = 8 };
    char *got = malloc(COUNT * LEN);
    assert_non_null(got);
    fixture_pump(f);
    ls_state *lua = test_state(f->t);
    (void)lua_gc(lua->L, LUA_GCCOLLECT);
    assert_in_range(atomic_load(&lua->bytes_live), LEN, 3 * LEN);
    assert_int_equal(lua->strings.used, 1);
    assert_int_equal(fixture_read(f, f->peer, got, COUNT * LEN), COUNT * LEN);
    for (int n = 0; n < COUNT * LEN; n++)
        if (got[n] != '1' + n / LEN) fail_msg("a wrong byte at %d", n);
    fixture_await(f, "sent");
    free(got);
}

/* A connection that is closed, or lost, with strings in its queue releases them. */
TEST_IN(served, f, a_closed_connection_releases_its_strings, "write_bytes_high = 100000000",
        "for i = 1, 5 do sock:send(tostring(i):rep(1024):rep(1024)) end sock:receive(1) sock:send('x', "
        "('y'):rep(20000)) "
        "core.log('info', 'over')")
{
    fixture_pump(f);
    const ls_state *lua = test_state(f->t);
    assert_int_equal(lua->strings.used, 5);
    close(f->peer);
    f->peer = -1;
    fixture_await(f, "over");
    fixture_pump(f);
    assert_int_equal(lua->strings.used, 0);
}

/* receiveany returns the received block, and send shares it. */
TEST_IN(served, f, an_echo_copies_nothing, "",
        "local shared = 0 while true do local data = sock:receiveany() if not data then break end "
        "if type(data) == 'userdata' then shared = shared + #data end assert(sock:send(data)) end "
        "core.log('info', shared > 2500000 and 'mostly shared' or 'shared ' .. shared)")
{
    enum { LEN = 3000000 };
    ls_pools_stats before, after;
    char *bytes = malloc(LEN), *got = malloc(LEN);
    size_t sent = 0, back = 0;
    assert_non_null(bytes);
    assert_non_null(got);
    for (size_t n = 0; n < LEN; n++) bytes[n] = (char)(n * 7 + n / 251);
    ls_pools_stat(f->t->pools, &before);
    while (back < LEN) {
        const ssize_t out = sent < LEN ? write(f->peer, bytes + sent, LEN - sent) : 0;
        if (out > 0) sent += (size_t)out;
        if (sent == LEN && out != 0) assert_int_equal(shutdown(f->peer, SHUT_WR), 0);
        fixture_pump(f);
        const ssize_t in = read(f->peer, got + back, LEN - back);
        assert_true(in > 0 || (in < 0 && errno == EAGAIN));
        if (in > 0) back += (size_t)in;
    }
    fixture_await(f, "mostly shared");
    ls_pools_stat(f->t->pools, &after);
    assert_int_equal(after.bytes_copied, before.bytes_copied);
    assert_memory_equal(got, bytes, LEN);
    free(bytes);
    free(got);
}

/* ---- timeouts
 * ---------------------------------------------------------------------------------------------------- */

TEST_IN(served, f, a_receive_timeout_keeps_the_received_bytes, "",
        "sock:settimeouts(nil, nil, 0.02) sock:send(show(sock:receive(10)), ' ', show(sock:receive('*l')), ' ', "
        "show(sock:receiveuntil('x')), ' ', show(sock:receiveany()), ' ', show(sock:receive('*a')), ' ') "
        "for _ in sock:lines() do end sock:send(sock.ended, '\\n') "
        "sock:settimeouts(nil, nil, false) sock:send(sock:receive('*l'))")
{
    static const char expected[] = "nil|timeout|ETIMEDOUT|part nil|timeout|ETIMEDOUT| nil|timeout|ETIMEDOUT| "
                                   "nil|timeout|ETIMEDOUT nil|timeout|ETIMEDOUT| ETIMEDOUT\n";
    char got[200];
    fixture_send(f, f->peer, "part");
    got[fixture_read(f, f->peer, got, sizeof expected - 1)] = '\0';
    assert_string_equal(got, expected);
    fixture_send(f, f->peer, "after it\n");
    fixture_ends_with(f, f->peer, "after it");
}

/* A blocked sender does not shorten the timeout of the receiver, nor does a blocked receiver lengthen that of the
 * sender, which closes the connection. */
TEST(each_direction_has_its_own_timeout)
{
    sock_fixture fixture;
    fixture_open(
        &fixture, "",
        "local job = core.spawn(function() local s = ('x'):rep(1024):rep(4 << 10) sock:settimeouts(nil, 30, nil) "
        "  return sock:send(s) end) "
        "sock:settimeouts(nil, nil, 0.01) for i = 1, 3 do is(show(sock:receive(1)), 'nil|timeout|ETIMEDOUT|') end "
        "is(sock.queued, 4 << 20) core.log('info', 'thrice') "
        "sock:settimeouts(nil, nil, 30) sock:receive(1) core.log('info', 'received') job:wait()");
    int peer = fixture_connect(&fixture);
    fixture_await(&fixture, "thrice");
    fixture_send(&fixture, peer, "x");
    fixture_await(&fixture, "received");
    fixture_leave(&fixture, peer);

    fixture_open(&fixture, "",
                 "local s = ('x'):rep(1024):rep(4 << 10) "
                 "local job = core.spawn(function() return show(sock:receive(1)) end) "
                 "sock:settimeouts(nil, 0.02, 30) "
                 "core.log('info', 'sender: ' .. show(sock:send(s)) .. ', again: ' .. show(sock:send('x'))) "
                 "core.log('info', 'receiver: ' .. job:wait())");
    peer = fixture_connect(&fixture);
    fixture_await(&fixture, "sender: nil|timeout|ETIMEDOUT, again: nil|timeout|ETIMEDOUT");
    fixture_await(&fixture, "receiver: nil|closed|ECLOSED"); /* at once, not after 30 s: the peer accepts nothing */
    fixture_leave(&fixture, peer);
}

/* ---- end of stream ---------------------------------------------------------------------------------------------- */

TEST(a_half_close)
{
    sock_fixture fixture;
    char got[64];
    fixture_open(
        &fixture, "",
        "sock:send('before') is(show(sock:shutdown()), 'true') is(show(sock:shutdown('send')), 'true') "
        "is(pcall(sock.send, sock, 'x'), false) is(select(2, pcall(sock.shutdown, sock, 'both')):find('must be') ~= "
        "nil, true) "
        "core.log('info', 'then ' .. show(sock:receive('*a')))");
    const int peer = fixture_connect(&fixture);
    fixture_pump(&fixture);
    assert_int_equal(fixture_read(&fixture, peer, got, sizeof got), 6); /* then the end of the stream */
    fixture_send(&fixture, peer, "still heard");
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    fixture_await(&fixture, "then still heard");
    fixture_leave(&fixture, peer);

    /* With unsent output in the queue, the end of the stream follows it. */
    enum { LEN = 1 << 20 };
    char *all = malloc(LEN + 1);
    assert_non_null(all);
    fixture_open(&fixture, "write_bytes_high = 100000000",
                 "sock:send(core.buffer(('q'):rep(1024):rep(1 << 10))) sock:shutdown() sock:receive('*a')");
    const int slow = fixture_connect(&fixture);
    fixture_pump(&fixture);
    assert_int_equal(fixture_read(&fixture, slow, all, LEN + 1), LEN);
    free(all);
    close(slow);
    fixture_close(&fixture);
}

TEST_IN(served, f, use_after_close, "",
        "sock:close() sock:close() local closed = 'nil|closed|ECLOSED' "
        "is(show(sock:receive(1)), closed) is(show(sock:receive()), closed) is(show(sock:receive('*a')), closed) "
        "is(show(sock:receiveany()), closed) is(show(sock:receiveuntil('x')), closed) "
        "is(show(sock:send('x')), closed) is(show(sock:flush()), closed) is(show(sock:shutdown()), closed) "
        "is(show(sock:setkeepalive()), closed) is(show(sock:settimeouts(1, 1, 1)), '') is(show(sock:abort()), '') "
        "for _ in sock:lines() do error('a line') end for _ in sock:chunks() do error('a chunk') end "
        "is(show(sock.remote, sock.local_addr, sock.ended, sock.queued), 'nil|nil|ECLOSED|0') "
        "is(tostring(sock), 'sock (closed)') core.log('info', 'all checked')")
{
    fixture_ends_with(f, f->peer, "");
    assert_true(fixture_logged(f, "all checked"));
}

TEST(a_reset_is_an_error_of_both_directions)
{
    sock_fixture fixture;
    fixture_open(
        &fixture, "",
        "local d, e, c, part = sock:receive(10) "
        "core.log('info', show(d, e, c, part) .. ' ' .. show(sock:receive(1)) .. ' ' .. show(sock:receive('*a')))");
    const int peer = fixture_connect_tcp(&fixture);
    fixture_send(&fixture, peer, "some");
    const struct linger none = {1, 0};
    assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
    close(peer);
    fixture_await(&fixture, "nil|connection reset by the peer|ERESET|some nil|connection reset by the peer|ERESET| "
                            "nil|connection reset by the peer|ERESET|");
    fixture_close(&fixture);

    fixture_open(
        &fixture, "",
        "local s = ('x'):rep(1024):rep(8 << 10) core.log('info', show(sock:send(s)) .. ' ' .. show(sock:send('x')))");
    const int other = fixture_connect_tcp(&fixture);
    fixture_pump(&fixture);
    assert_int_equal(setsockopt(other, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
    close(other);
    fixture_await(&fixture, "nil|connection reset by the peer|ERESET nil|connection reset by the peer|ERESET");
    fixture_close(&fixture);
}

/* Unflushed output is sent when the function returns, raises or closes the sock, but not when it aborts it. */
TEST_IN(served, f, unflushed_output_is_sent_at_the_end, "", "sock:send('last') error('after all')")
{
    char got[8];
    talk("", "sock:send('last')", PIECES(""), "last");
    talk("", "sock:send('last') sock:close()", PIECES(""), "last");
    talk("", "sock:send('last') sock:abort()", PIECES(""), "");
    talk("", "local s <close> = sock sock:send('last')", PIECES(""), "last");
    assert_int_equal(fixture_read(f, f->peer, got, sizeof got), 4);
    assert_non_null(strstr(f->t->log, "connection from unix:: "));
    assert_non_null(strstr(f->t->log, "after all"));
    f->t->log[0] = '\0';
}

/* ---- interference by other tasks and finalizers
 * ------------------------------------------------------------------ */

TEST_IN(served, f, one_task_receives_at_a_time, "",
        "local first = core.spawn(function() return sock:receive('*l') end) core.sleep(0) "
        "local function busy(f, ...) local ok, why = pcall(f, ...) is(ok, false) "
        "is(why:match('another task already receives from this socket$') ~= nil, true) end "
        "busy(sock.receive, sock, 1) busy(sock.receive, sock) busy(sock.receive, sock, '*a') "
        "busy(sock.receiveany, sock) busy(sock.receiveuntil, sock, 'x') "
        "busy(sock:lines(), sock) busy(sock:chunks(), sock) "
        "sock:send('sending goes on') sock:flush() sock:send(first:wait(), sock:receive(4))")
{
    char got[32];
    assert_int_equal(fixture_read(f, f->peer, got, 15), 15);
    fixture_send(f, f->peer, "line\nnext");
    fixture_ends_with(f, f->peer, "linenext");
}

TEST(close_wakes_the_waiting_tasks)
{
    sock_fixture fixture;
    fixture_open(&fixture, "",
                 "local s = ('x'):rep(1024):rep(4 << 10) "
                 "local r = core.spawn(function() return show(sock:receive(10)) end) "
                 "local a = core.spawn(function() return show(sock:send(s)) end) "
                 "local b = core.spawn(function() return show(sock:flush()) end) core.sleep(0.01) "
                 "sock:abort() core.log('info', r:wait() .. ' ' .. a:wait() .. ' ' .. b:wait())");
    int peer = fixture_connect(&fixture);
    fixture_await(&fixture, "nil|closed|ECLOSED nil|closed|ECLOSED nil|closed|ECLOSED");
    fixture_leave(&fixture, peer);

    /* close() also wakes the receiver, but sends the queue first: the senders wake when it is sent. */
    enum { LEN = 4 << 20 };
    char *got = malloc(LEN + 1);
    assert_non_null(got);
    fixture_open(&fixture, "",
                 "local s = ('x'):rep(1024):rep(4 << 10) "
                 "local r = core.spawn(function() return show(sock:receive(10)) end) "
                 "local a = core.spawn(function() return show(sock:send(s)) end) core.sleep(0.01) sock:close() "
                 "core.log('info', 'receiver ' .. r:wait()) core.log('info', 'sender ' .. a:wait())");
    peer = fixture_connect(&fixture);
    fixture_await(&fixture, "receiver nil|closed|ECLOSED");
    assert_false(fixture_logged(&fixture, "sender"));
    assert_int_equal(fixture_read(&fixture, peer, got, LEN + 1), LEN);
    fixture_await(&fixture, "sender nil|closed|ECLOSED");
    free(got);
    fixture_leave(&fixture, peer);
}

/* A finalizer may run at every allocation, so also in the middle of a receive, and may call any function of that
 * sock. */
TEST(finalizers_that_close_or_receive)
{
    static const char *const actions[] = {"sock:close()", "sock:abort()", "sock:receiveany(700)", "sock:receive(1)"};
    static const char *const receives[] = {"sock:receive(20000)",  "sock:receive('*l')",       "sock:receiveany()",
                                           "sock:receiveany(100)", "sock:receiveuntil('\\n')", "sock:receive('*a')",
                                           "sock:lines()(sock)",   "sock:chunks()(sock)"};
    char line[30001], serve[600];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (size_t m = 0; m < sizeof actions / sizeof actions[0]; m++) {
        for (size_t r = 0; r < sizeof receives / sizeof receives[0]; r++) {
            sock_fixture fixture;
            (void)snprintf(
                serve, sizeof serve,
                "collectgarbage('incremental', 10, 1000, 6) core.sleep(0) "
                "for i = 1, 40 do "
                "  for k = 1, 3 do setmetatable({}, { __gc = function() if i %% 4 == 3 then %s end end }) end "
                "  if not %s then break end sock:send('ok') "
                "end core.log('info', 'over')",
                actions[m], receives[r]);
            fixture_open(&fixture, "", serve);
            const int peer = fixture_connect(&fixture);
            for (int n = 0; n < 8; n++) fixture_write(&fixture, peer, line, sizeof line);
            (void)shutdown(peer, SHUT_WR);
            fixture_await(&fixture, "over");
            fixture_leave(&fixture, peer);
        }
    }
}

static int collect_all(lua_State *L)
{
    (void)lua_gc(L, LUA_GCCOLLECT);
    return 0;
}

/* The core collects garbage while no task runs: a task that a finalizer wakes then runs after it, not inside it. */
TEST_IN(served, f, a_finalizer_wakes_a_task_outside_tasks, "",
        "local inside = false "
        "core.spawn(function() setmetatable({}, { __gc = function() inside = true sock:close() inside = false "
        "end }) end) "
        "local r = show(sock:receive(1)) core.log('info', r .. (inside and ' inside' or ' after')) "
        "error('planned')")
{
    fixture_pump(f);
    ls_state *const lua = test_state(f->t);
    assert_true(ls_actor_try_enter(&lua->actor, &f->t->ctx));
    assert_int_equal(ls_state_protected(lua, &f->t->ctx, collect_all, NULL), LUA_OK);
    ls_actor_leave(&lua->actor, &f->t->ctx);
    fixture_await(f, "nil|closed|ECLOSED after");
    fixture_await(f, "planned");
    f->t->log[0] = '\0';
}

TEST(finalizers_while_sending)
{
    static char got[8 << 20];
    sock_fixture fixture;
    for (int n = 0; n < 20; n++) {
        fixture_open(&fixture, "",
                     "collectgarbage('incremental', 10, 1000, 6) local closing = false "
                     "for i = 1, 100 do local t = { ('a'):rep(1000):rep(20) } "
                     "  for k = 1, 200 do t[#t + 1] = i + k / 7 end t[#t + 1] = ('b'):rep(1000):rep(20) "
                     "  setmetatable({}, { __gc = function() if i > 20 then sock:close() end end }) "
                     "  if not sock:send(t, i, i / 3) then break end end "
                     "core.log('info', 'over')");
        const int peer = fixture_connect(&fixture);
        (void)fixture_read(&fixture, peer, got, sizeof got);
        fixture_await(&fixture, "over");
        fixture_leave(&fixture, peer);
    }
}

/* When Lua's memory runs out at any point of a send, either all bytes are sent or none. */
TEST(out_of_memory_while_sending)
{
    enum { LEN = 20000 + 200 * 5 + 20000 + 1 };
    static const char serve[] =
        "local x, t = 'x', { ('a'):rep(1000):rep(20) } for k = 100, 299 do t[#t + 1] = k + 0.5 end "
        "t[#t + 1] = ('b'):rep(1000):rep(20) "
        "while sock:receive(1) do pcall(sock.send, sock, t) sock:send('.') end";
    sock_fixture fixture;
    char got[LEN], as[20000], bs[20000];
    unsigned whole = 0;
    memset(as, 'a', sizeof as);
    memset(bs, 'b', sizeof bs);
    fixture_open(&fixture, "", serve);
    ls_state *const lua = test_state(fixture.t);
    const size_t bytes_max = lua->bytes_max;
    const int peer = fixture_connect(&fixture);
    for (size_t extra = 0; extra < 3000; extra++) {
        (void)lua_gc(lua->L, LUA_GCCOLLECT);
        test_limit_memory(lua, lua->bytes_live + extra);
        fixture_send(&fixture, peer, "x");
        test_limit_memory(lua, bytes_max);
        assert_int_equal(fixture_read(&fixture, peer, got, 1), 1);
        if (got[0] == '.') continue;
        assert_int_equal(fixture_read(&fixture, peer, got + 1, LEN - 1), LEN - 1);
        assert_int_equal(got[LEN - 1], '.');
        assert_memory_equal(got, as, sizeof as);
        assert_memory_equal(got + 21000, bs, sizeof bs);
        whole++;
    }
    assert_true(whole > 0);
    fixture_ends_with(&fixture, peer, "");
    fixture_close(&fixture);
}

/* Output queued by a __close metamethod of a failed task is flushed. */
TEST(output_of_a_close_metamethod_is_flushed)
{
    sock_fixture fixture;
    char got[8];
    fixture_open(
        &fixture, "",
        "if not first then first = sock sock:receive(1) return end "
        "local last <close> = setmetatable({}, { __close = function() first:send('bye') end }) error('planned')");
    const int one = fixture_connect(&fixture), two = fixture_connect(&fixture);
    fixture_await(&fixture, "planned");
    assert_int_equal(fixture_read(&fixture, one, got, 3), 3);
    assert_memory_equal(got, "bye", 3);
    fixture.t->log[0] = '\0';
    close(one);
    close(two);
    fixture_close(&fixture);
}

/* A __tostring metamethod of the script makes the message of an error. */
TEST_IN(served, f, a_tostring_metamethod_closes_the_sock, "",
        "sock:send('a') error(setmetatable({}, { __tostring = function() sock:close() return 'a text' end }))")
{
    char got[8];
    assert_int_equal(fixture_read(f, f->peer, got, sizeof got), 1);
    assert_non_null(strstr(f->t->log, "a text"));
    f->t->log[0] = '\0';
}
