/* test_resolver_cache.c - a name is asked for again when the time of its records has passed. The test is the name
 * server. */
/* sanitizers: asan; no thread starts */
#include "resolver_fixture.h"

#include <poll.h>

enum { PATIENCE_S = 90, KIND_A = 1, KIND_CNAME = 5, NO_SUCH_NAME = 3, QUESTION_AT = 12, RECORDS_MAX = 2 };

typedef struct record { /* of an answer to a question about addresses of IPv4 */
    uint8_t kind;
    uint32_t ttl_s;
} record;

static uint64_t later_ms; /* what the clock is ahead */
uint64_t __real_ls_clock_coarse_ms(void);

uint64_t __wrap_ls_clock_coarse_ms(void)
{
    return __real_ls_clock_coarse_ms() + later_ms;
}

static struct {
    fixture f;
    int server;
} at;

static void open_resolver(void)
{
    char servers[40];
    later_ms = 0;
    at.server = silent_name_server(servers, sizeof servers);
    fixture_open(&at.f, servers);
}

static void close_resolver(void)
{
    fixture_close(&at.f);
    (void)close(at.server);
}

static size_t put(unsigned char *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i > 0; value >>= 8) to[--i] = (unsigned char)value;
    return bytes;
}

/* Answer one question: the records if it is for IPv4, the address of which is 127.0.0.1; else none. */
static void answer_question(unsigned code, const record *records, unsigned count)
{
    unsigned char text[512];
    struct sockaddr_storage from;
    socklen_t from_len = sizeof from;
    struct pollfd question = {.fd = at.server, .events = POLLIN};
    assert_int_equal(poll(&question, 1, PATIENCE_S * 1000), 1);
    assert_true(recvfrom(at.server, (void *)text, 300, 0, (struct sockaddr *)&from, &from_len) > QUESTION_AT);
    size_t end = QUESTION_AT;
    while (text[end] != 0) end += 1u + text[end];
    if (text[end + 2] != KIND_A) count = 0;
    end += 5; /* behind the type and the class; what follows, such as EDNS, is dropped */
    (void)put(text + 2, 0x8180 | code, 2);
    (void)put(text + 6, count, 2);
    (void)put(text + 10, 0, 2);
    for (unsigned i = 0; i < count; i++) {
        const bool alias = records[i].kind == KIND_CNAME; /* of the name as "c.test", which the next record has */
        end += put(text + end, i == 0 ? 0xc00c : 0xc000 | (end - 8), 2);
        end += put(text + end, records[i].kind, 2);
        end += put(text + end, 1, 2);
        end += put(text + end, records[i].ttl_s, 4);
        end += put(text + end, alias ? 8 : 4, 2);
        memcpy(text + end, alias ? "\1c\4test" : "\x7f\0\0\1", alias ? 8 : 4);
        end += alias ? 8 : 4;
    }
    assert_int_equal(sendto(at.server, text, end, 0, (struct sockaddr *)&from, from_len), end);
}

/* Look the name up, and answer: both questions, one for each kind of address. Returns the error of the lookup. */
static int ask(const char *name, unsigned code, const record *records, unsigned count)
{
    const unsigned before = at.f.lookup_done;
    const uint64_t until_ms = ls_clock_coarse_ms() + PATIENCE_S * 1000;
    ls_lookup *lookup;
    assert_int_equal(look_up(&at.f, name, &lookup), LS_PENDING);
    answer_question(code, records, count);
    answer_question(code, records, count);
    while (at.f.lookup_done == before) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        take_packets(&at.f, 1);
    }
    const int err = lookup->err;
    assert_int_equal(lookup->count, err < 0 ? 0 : 1);
    drop(&at.f, lookup);
    return err;
}

/* The name is known: nobody is asked. */
static void known(const char *name)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_lookup *lookup;
    assert_int_equal(look_up(&at.f, name, &lookup), LS_DONE);
    assert_int_equal(lookup->err, LS_OK);
    assert_int_equal(lookup->count, 1);
    assert_string_equal(ls_addr_text(&lookup->addrs[0], text), "127.0.0.1:7000");
    drop(&at.f, lookup);
}

TEST(a_name_is_kept_as_long_as_its_record_allows)
{
    const record one = {KIND_A, 20};
    open_resolver();
    assert_int_equal(ask("one.test.", 0, &one, 1), LS_OK);
    known("one.test.");
    known("ONE.test.");
    later_ms = 15000;
    known("one.test.");
    later_ms = 20001;
    assert_int_equal(ask("one.test.", 0, &one, 1), LS_OK);
    known("one.test.");
    close_resolver();
}

TEST(the_shortest_of_several_records_counts)
{
    const record records[RECORDS_MAX] = {{KIND_CNAME, 5}, {KIND_A, 500}};
    open_resolver();
    assert_int_equal(ask("alias.test.", 0, records, RECORDS_MAX), LS_OK);
    known("alias.test.");
    later_ms = 5001;
    assert_int_equal(ask("alias.test.", 0, records, RECORDS_MAX), LS_OK);
    close_resolver();
}

TEST(what_must_not_be_kept_is_asked_for_each_time)
{
    const record none = {KIND_A, 0}, negative = {KIND_A, 0x80000000};
    open_resolver();
    for (unsigned n = 0; n < 2; n++) assert_int_equal(ask("none.test.", 0, &none, 1), LS_OK);
    for (unsigned n = 0; n < 2; n++) assert_int_equal(ask("negative.test.", 0, &negative, 1), LS_OK);
    for (unsigned n = 0; n < 2; n++) assert_int_equal(ask("no-such.test.", NO_SUCH_NAME, NULL, 0), LS_ENOENT);
    close_resolver();
}
