/* test_coding_filter.c - the coding of responses at its limits, and the cache of encoded bodies. What a client sees of
 * it is in e2e/test_compress.py. Skipped without zlib. */
/* sanitizers: asan; no thread starts */
#include "http/http1_fixture.h"

#include "http/coding/coding_filter.h"
#include "http/noting_transport.h"

enum { AT_ONCE = 262144, CACHED_MAX = 65536 };

static fixture *place;
static ls_coding_rules *rules;
static const char head_text[] = "accept-encodinggzipif-none-matchW/\"a\"";

static int open_rules(void **state)
{
    static const char types[] = "text/\0+json\0application/json\0";
    rules = ls_coding_rules_open(sizeof types, 100000);
    assert_non_null(rules);
    memcpy(rules->types, types, sizeof types);
    rules->bytes_min = 100;
    rules->count = 1;
    rules->codings[0] = LS_CODING_GZIP;
    rules->levels[LS_CODING_GZIP] = 1;
    return 0;
}

static int close_rules(void **state)
{
    ls_coding_rules_drop(rules);
    return 0;
}

static void begin(noting *n, const char *type)
{
    memset(n, 0, offsetof(noting, x) + offsetof(ls_exchange, head));
    n->x.bytes = head_text;
    n->x.head = (ls_http_head){.method = LS_HTTP_GET, .version = 11, .field_count = 2};
    n->x.head.fields[0] = (ls_http_field){.name = {0, 15}, .value = {15, 4}};
    n->x.head.fields[1] = (ls_http_field){.name = {19, 13}, .value = {32, 5}};
    n->x.open_framing = LS_FRAMED_BY_PARTS;
    n->x.body_done = true;
    n->x.transport = &noting_transport;
    n->x.status = 200;
    n->x.length = -1;
    n->x.type = type;
    assert_int_equal(ls_coding_filter_add(&n->x, rules), LS_OK);
    assert_int_equal(ls_coding_filter_add(&n->x, rules), LS_OK); /* once more: no effect */
    assert_ptr_equal(ls_exchange_transport(&n->x), &noting_transport);
}

static void end(noting *n)
{
    ls_exchange_drop_fields(&n->x);
}

static bool is_coded(const noting *n)
{
    size_t len;
    const char *value = ls_exchange_find(&n->x, "content-encoding", 16, &len);
    return value != NULL && len == 4 && memcmp(value, "gzip", 4) == 0;
}

static void release(ls_external *external)
{
    free(external);
}

/* A slice of a block with `len` bytes of text. */
static ls_slice text_slice(size_t len)
{
    ls_external *external = malloc(sizeof *external + len);
    char *bytes = (char *)(external + 1);
    assert_non_null(external);
    ls_external_init(external, LS_BLOCK_EXTERNAL, release);
    for (size_t n = 0; n < len; n++) bytes[n] = "abcdefg hijk "[n * 7 % 13];
    return ls_slice_external(external, bytes, len);
}

static void respond(noting *n, const char *type, size_t len)
{
    ls_slice slice = text_slice(len);
    begin(n, type);
    assert_int_equal(ls_exchange_respond(&place->place.ctx, &n->x, &slice, 1), LS_DONE);
}

/* What the noting transport got decodes to this text. */
static void decodes_to(const noting *n, size_t len)
{
    ls_slice text = text_slice(len);
    char *out = malloc(len + 1);
    ls_decoder *decoder;
    size_t in = n->body_len, got = len + 1;
    assert_non_null(out);
    assert_int_equal(ls_decoder_open(LS_CODING_GZIP, &decoder), LS_OK);
    assert_int_equal(ls_decoder_run(decoder, n->body, &in, out, &got), LS_OK);
    assert_true(ls_decoder_ended(decoder));
    assert_int_equal(got, len);
    assert_memory_equal(out, text.ptr, len);
    ls_decoder_close(decoder);
    ls_slice_drop(&text);
    free(out);
}

static void the_smallest_body(void **state)
{
    static noting n;
    for (size_t len = 98; len < 103; len++) {
        respond(&n, "text/plain", len);
        assert_int_equal(is_coded(&n), len >= 100);
        assert_int_equal(ls_exchange_has_field(&n.x, "vary", 4), len >= 100);
        assert_int_equal(n.length, n.body_len);
        assert_int_equal(ls_exchange_body_sent(&n.x), n.body_len);
        end(&n);
    }
}

static void a_longer_body_is_left_to_other_threads(void **state)
{
    static noting n;
    respond(&n, "text/plain", AT_ONCE);
    assert_false(ls_coding_filter_waits(&n.x));
    assert_int_equal(n.x.response, LS_RESPONSE_DONE);
    decodes_to(&n, AT_ONCE);
    end(&n);

    unsigned pieces = 0;
    respond(&n, "text/plain", 3 * AT_ONCE + 1);
    assert_int_equal(n.x.response, LS_RESPONSE_OPEN);
    assert_int_equal(n.body_len, 0);
    for (; ls_coding_filter_waits(&n.x); pieces++) {
        assert_int_equal(ls_coding_filter_work(ls_coding_filter_of(&n.x)), LS_OK);
        assert_int_equal(ls_coding_filter_put(&place->place.ctx, &n.x), LS_DONE);
    }
    assert_int_equal(n.x.response, LS_RESPONSE_DONE);
    assert_int_equal(n.lasts, 1);
    decodes_to(&n, 3 * AT_ONCE + 1);
    end(&n);

    respond(&n, "text/plain", AT_ONCE + 1); /* it ends before its body is encoded */
    assert_true(ls_coding_filter_waits(&n.x));
    assert_int_equal(ls_coding_filter_work(ls_coding_filter_of(&n.x)), LS_OK);
    ls_exchange_abort(&place->place.ctx, &n.x);
    assert_false(ls_coding_filter_waits(&n.x));
    assert_int_equal(ls_coding_filter_put(&place->place.ctx, &n.x), LS_ECANCELED);
    end(&n);
}

static void types(void **state)
{
    static const struct {
        const char *type;
        bool coded;
    } rows[] = {
        /* clang-format off */
        {"text/plain", true}, {"TEXT/css;charset=utf-8", true}, {"text/", true}, {"text", false},
        {"application/json ; a=b", true}, {"application/json2", false}, {"application/ld+json", true},
        {"+json", true}, {"json", false}, {"image/png", false}, {"", false}, {NULL, false},
        /* clang-format on */
    };
    static noting n;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        respond(&n, rows[i].type, 1000);
        assert_int_equal(is_coded(&n), rows[i].coded);
        end(&n);
    }
}

/* A strong tag is made weak; one that is too long for that is left out. */
static void tags(void **state)
{
    static noting n;
    char tag[300], expected[302] = "W/";
    memset(tag, 'x', sizeof tag);
    tag[0] = '"';
    for (size_t len = 254; len < 259; len++) {
        size_t got_len = 0;
        ls_slice slice = text_slice(1000);
        char before = tag[len - 1];
        tag[len - 1] = '"';
        memcpy(expected + 2, tag, len);
        begin(&n, "text/plain");
        assert_int_equal(ls_exchange_header(&place->place.ctx, &n.x, "ETag", 4, tag, len, true), LS_OK);
        assert_int_equal(ls_exchange_respond(&place->place.ctx, &n.x, &slice, 1), LS_DONE);
        const char *got = ls_exchange_find(&n.x, "etag", 4, &got_len);
        assert_int_equal(got != NULL, len <= 256);
        if (got != NULL) assert_int_equal(got_len, len + 2);
        if (got != NULL) assert_memory_equal(got, expected, got_len);
        tag[len - 1] = before;
        end(&n);
    }
}

/* An error of the transport, or no memory for a block, at each call ends the exchange, and nothing is left open. */
static unsigned calls_left;

static int fails_later(noting *n, enum noting_call call)
{
    (void)n, (void)call;
    return calls_left-- == 0 ? LS_ERESET : LS_DONE;
}

static void errors_of_the_transport(void **state)
{
    static noting n;
    for (unsigned first = 0; first < 3; first++) {
        begin(&n, "text/plain");
        n.result = fails_later;
        calls_left = first;
        for (unsigned part = 0; part < 3; part++) {
            ls_slice slice = text_slice(70000);
            (void)ls_exchange_write(&place->place.ctx, &n.x, &slice, 1);
            (void)ls_exchange_flush(&place->place.ctx, &n.x);
        }
        (void)ls_exchange_finish(&place->place.ctx, &n.x);
        assert_int_equal(n.x.error, LS_ERESET);
        end(&n);
    }
}

/* Bodies of five windows, of which four encoders are kept; those of bodies in parts, of which two have room. */
static void encoders_are_kept(void **state)
{
    static const size_t lengths[] = {200, 300, 1000, 2000, 4000};
    static noting n, parts[3];
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned again = 0; again < 3; again++) { /* encoded, encoded again, from the cache */
            respond(&n, "text/plain", lengths[i]);
            decodes_to(&n, lengths[i]);
            end(&n);
            assert_int_equal(rules->kept_count, i < LS_CODING_KEPT_MAX ? i + 1 : LS_CODING_KEPT_MAX);
        }
    }
    assert_int_equal(rules->kept[0].bytes, 8 << 10); /* that of 200 bytes was the oldest */
    for (unsigned i = 0; i < 3; i++) {
        ls_slice slice = text_slice(500);
        begin(&parts[i], "text/plain");
        assert_int_equal(ls_exchange_write(&place->place.ctx, &parts[i].x, &slice, 1), LS_DONE);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ls_exchange_finish(&place->place.ctx, &parts[i].x), LS_DONE);
        decodes_to(&parts[i], 500);
        end(&parts[i]);
        assert_int_equal(rules->kept_count, i == 0 ? LS_CODING_KEPT_MAX : 2);
    }
    assert_int_equal(rules->kept_bytes, LS_CODING_KEPT_BYTES_MAX);

    ls_slice slice = text_slice(500); /* aborted: its encoder, which was kept, is not finished */
    begin(&n, "text/plain");
    assert_int_equal(ls_exchange_write(&place->place.ctx, &n.x, &slice, 1), LS_DONE);
    assert_int_equal(rules->kept_count, 1);
    ls_exchange_abort(&place->place.ctx, &n.x);
    end(&n);
    assert_int_equal(rules->kept_count, 1);
}

/* ---- the cache
 * ---------------------------------------------------------------------------------------------------- */

static bool find(ls_coding_cache *cache, const ls_slice *body, uint64_t *key, bool *keep)
{
    ls_slice found;
    if (!ls_coding_cache_find(cache, LS_CODING_GZIP, body, key, keep, &found)) return false;
    assert_int_equal(found.len, 3);
    ls_slice_drop(&found);
    return true;
}

/* Look for the body as responses do, `times` times. Returns how often it was there. */
static unsigned look(ls_coding_cache *cache, const char *bytes, size_t len, unsigned times)
{
    const ls_slice body = ls_slice_static(bytes, len);
    unsigned hits = 0;
    for (unsigned n = 0; n < times; n++) {
        uint64_t key;
        bool keep;
        ls_slice encoded = ls_slice_static("abc", 3);
        if (find(cache, &body, &key, &keep))
            hits++;
        else if (keep)
            ls_coding_cache_put(cache, key, &body, &encoded, 1);
    }
    return hits;
}

static void a_body_is_kept_when_it_comes_again(void **state)
{
    char *bytes = calloc(1, CACHED_MAX + 1);
    ls_coding_cache *cache = ls_coding_cache_open(200000);
    assert_true(bytes != NULL && cache != NULL);
    assert_int_equal(look(cache, "hello", 5, 2), 0);
    assert_int_equal(look(cache, "hello", 5, 3), 3);
    assert_int_equal(look(cache, bytes, CACHED_MAX, 3), 1);
    assert_int_equal(look(cache, bytes, CACHED_MAX + 1, 5), 0);
    for (unsigned n = 0; n < 20000; n++) { /* bodies that come once take no memory, and one that is used stays */
        char once[16];
        (void)look(cache, once, (size_t)snprintf(once, sizeof once, "once %u", n), 1);
        if (n % 100 == 0) assert_true(look(cache, "hello", 5, 3) >= 1);
    }
    ls_coding_cache_close(cache);
    free(bytes);
}

static void the_memory_of_the_cache_has_a_limit(void **state)
{
    char bytes[1000] = {0};
    ls_coding_cache *cache = ls_coding_cache_open(2006); /* two entries of 1,000 and 3 bytes */
    ls_coding_cache *small = ls_coding_cache_open(1002);
    unsigned hits = 0;
    assert_true(cache != NULL && small != NULL);
    for (unsigned round = 0; round < 2; round++) {
        for (char c = 0; c < 3; c++) {
            bytes[0] = c;
            (void)look(cache, bytes, sizeof bytes, 2);
        }
    }
    for (char c = 0; c < 3; c++) {
        bytes[0] = c;
        hits += look(cache, bytes, sizeof bytes, 1);
    }
    assert_in_range(hits, 1, 2);
    assert_int_equal(look(small, bytes, sizeof bytes, 5), 0);
    assert_int_equal(look(small, bytes, sizeof bytes - 1, 5), 3);
    ls_coding_cache_close(cache);
    ls_coding_cache_close(small);
}

static int setup(void **state)
{
    place = fixture_open(NULL, 0);
    fixture_serve(place);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_smallest_body, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(a_longer_body_is_left_to_other_threads, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(types, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(tags, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(errors_of_the_transport, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(encoders_are_kept, open_rules, close_rules),
        cmocka_unit_test(a_body_is_kept_when_it_comes_again),
        cmocka_unit_test(the_memory_of_the_cache_has_a_limit),
    };
    return ls_coding_built(LS_CODING_GZIP) ? cmocka_run_group_tests(tests, setup, teardown) : 0;
}
