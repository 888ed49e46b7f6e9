/* fuzz_ws_inflate.c - messages of permessage-deflate: any data inflates within the limit or is refused, how it is divided into
 * slices does not matter, and a message that is compressed again inflates to the same. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/ws/ws_deflate.h"

enum { CAP = 32 << 20, HEAD_BYTES = 3 };

static ls_pools *pools;
static ls_pool *pool;
static ls_ws_deflate_store *store;

static void open_once(void)
{
    if (pools != NULL) return;
    FUZZ_HOLDS(ls_pools_open(CAP, &pools) == LS_OK && ls_pool_open(pools, &pool) == LS_OK);
    ls_pool_enter(pool);
    FUZZ_HOLDS(ls_ws_deflate_store_open(CAP, &store) == LS_OK);
}

static ls_ws_deflate side(bool client, bool takeover, unsigned bits)
{
    const ls_ws_deflate_params params = {takeover, takeover, (uint8_t)bits, (uint8_t)bits};
    ls_ws_deflate d;
    FUZZ_HOLDS(ls_ws_deflate_begin(store, &params, 0, client, &d) == LS_OK);
    return d;
}

static char *joined(ls_slices *list)
{
    char *text = malloc(list->bytes + 1);
    size_t at = 0;
    FUZZ_HOLDS(text != NULL);
    for (unsigned i = 0; i < list->count; at += ls_slices_items(list)[i++].len)
        memcpy(text + at, ls_slices_items(list)[i].ptr, ls_slices_items(list)[i].len);
    FUZZ_HOLDS(at == list->bytes);
    return text;
}

/* Inflate the data in pieces of at most `piece` bytes, each in memory of its own. */
static int inflate_pieces(ls_ws_deflate *d, const uint8_t *data, size_t size, size_t piece, uint64_t bytes_max,
                          ls_slices *out)
{
    const unsigned count = (unsigned)((size + piece - 1) / piece);
    ls_slice *slices = calloc(count + 1, sizeof *slices);
    char **copies = calloc(count + 1, sizeof *copies);
    FUZZ_HOLDS(slices != NULL && copies != NULL);
    for (unsigned i = 0; i < count; i++) {
        const size_t at = i * piece, len = size - at < piece ? size - at : piece;
        copies[i] = fuzz_copy_exact(data + at, len);
        slices[i] = ls_slice_static(copies[i], len);
    }
    memset(out, 0, sizeof *out);
    const int err = ls_ws_inflate_message(pool, d, slices, count, bytes_max, out);
    for (unsigned i = 0; i < count; i++) free(copies[i]);
    free(copies);
    free(slices);
    return err;
}

static void compress_again(const char *text, size_t len, bool takeover, unsigned bits)
{
    ls_ws_deflate from = side(false, takeover, bits), to = side(true, takeover, bits);
    for (unsigned round = 0; round < 2; round++) {
        const ls_slice slice = ls_slice_static(text, len);
        ls_slices packed = {.count = 0}, out = {.count = 0};
        const int err = ls_ws_deflate_message(pool, &from, &slice, 1, 10, &packed);
        FUZZ_HOLDS(err == LS_OK || (err == LS_EAGAIN && (!takeover || len == 0 || len > LS_WS_INFLATE_FREE_BYTES)));
        if (err < 0) break;
        FUZZ_HOLDS(packed.bytes <= ls_ws_deflate_bound(len));
        const int back = ls_ws_inflate_message(pool, &to, ls_slices_items(&packed), packed.count, len, &out);
        packed.count = 0;
        ls_slices_clear(&packed);
        FUZZ_HOLDS(back == LS_OK);
        char *same = joined(&out);
        FUZZ_HOLDS(out.bytes == len && memcmp(same, text, len) == 0);
        free(same);
        ls_slices_clear(&out);
    }
    ls_ws_deflate_end(&from);
    ls_ws_deflate_end(&to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD_BYTES) return 0;
    open_once();
    const bool takeover = (data[0] & 1) != 0;
    const unsigned bits = 9 + (data[0] >> 1) % 7;
    const uint64_t bytes_max = (uint64_t)data[1] << (data[2] % 15);
    const size_t piece = 1 + data[0] / 16;
    const uint8_t *const bytes = data + HEAD_BYTES;
    const size_t len = size - HEAD_BYTES;
    ls_ws_deflate d = side(false, takeover, bits), same = side(false, takeover, bits);
    ls_slices whole, parts;
    const int err = inflate_pieces(&d, bytes, len, len > 0 ? len : 1, bytes_max, &whole);
    FUZZ_HOLDS(err == LS_OK || err == LS_EMSGSIZE || err == LS_EPROTO);
    const int other = inflate_pieces(&same, bytes, len, piece, bytes_max, &parts);
    /* of data that is both too long and corrupt, the call that sees more of it may find the second fault first */
    FUZZ_HOLDS((err == LS_OK) == (other == LS_OK) && whole.bytes == parts.bytes && whole.bytes <= bytes_max);
    FUZZ_HOLDS(whole.bytes <= LS_WS_INFLATE_FREE_BYTES || whole.bytes <= len * LS_WS_INFLATE_RATIO_MAX);
    if (err == LS_OK) {
        char *one = joined(&whole), *two = joined(&parts);
        FUZZ_HOLDS(memcmp(one, two, whole.bytes) == 0);
        compress_again(one, whole.bytes, takeover, bits);
        free(one);
        free(two);
    }
    ls_slices_clear(&whole);
    ls_slices_clear(&parts);
    ls_ws_deflate_end(&d);
    ls_ws_deflate_end(&same);
    FUZZ_HOLDS(ls_ws_deflate_store_bytes(store) == 0);
    return 0;
}
