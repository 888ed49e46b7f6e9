/* deflate.c - see deflate.h. */
#include "stress/load/deflate.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "stress/load/bytes.h"

struct ls_stress_deflate {
    ls_ws_deflate_store *store;
    ls_ws_deflate deflate;
    ls_stress_bytes packed, plain; /* the last message that was inflated; packed.len 0: none */
    ls_stress_bytes sent;          /* the last one that was compressed */
};

const ls_ws_deflate_options ls_stress_deflate_options = LS_WS_DEFLATE_OPTIONS;

int ls_stress_deflate_open(ls_stress_deflate **out)
{
    static const ls_ws_deflate_params params = {.server_bits = LS_WS_DEFLATE_BITS_MAX,
                                                .client_bits = LS_WS_DEFLATE_BITS_MAX};
    if (ls_ws_deflate_library() == NULL) return LS_ENOTSUP;
    ls_stress_deflate *z = calloc(1, sizeof *z);
    if (z == NULL) return LS_ENOMEM;
    int err = ls_ws_deflate_store_open(0, &z->store);
    if (err == LS_OK) err = ls_ws_deflate_begin(z->store, &params, LS_WS_DEFLATE_BYTES_MIN, true, &z->deflate);
    if (err < 0) {
        ls_stress_deflate_close(z);
        return err;
    }
    *out = z;
    return LS_OK;
}

void ls_stress_deflate_close(ls_stress_deflate *z)
{
    if (z == NULL) return;
    ls_ws_deflate_end(&z->deflate);
    ls_ws_deflate_store_close(z->store);
    free(z->packed.at);
    free(z->plain.at);
    free(z->sent.at);
    free(z);
}

/* Move the slices into `b`. LS_OK or LS_ENOMEM. */
static int move(ls_stress_bytes *b, ls_slices *slices)
{
    bool ok = true;
    b->len = 0;
    for (unsigned i = 0; ok && i < slices->count; i++) {
        const ls_slice *slice = &ls_slices_items(slices)[i];
        ok = ls_stress_bytes_add(b, slice->ptr, slice->len, SIZE_MAX);
    }
    ls_slices_clear(slices);
    return ok ? LS_OK : LS_ENOMEM;
}

int ls_stress_deflate_message(ls_stress_deflate *z, ls_pool *pool, const char *plain, size_t len, const char **packed,
                              size_t *packed_len)
{
    ls_slices out = {.count = 0};
    const ls_slice in = ls_slice_static(plain, len);
    int err = ls_ws_deflate_message(pool, &z->deflate, &in, 1, 0, &out);
    if (err == LS_OK) err = move(&z->sent, &out);
    if (err < 0) return err;
    *packed = z->sent.at;
    *packed_len = z->sent.len;
    return LS_OK;
}

int ls_stress_deflate_once(const char *plain, size_t len, char **packed, size_t *packed_len)
{
    ls_stress_deflate *z = NULL;
    ls_pools *pools;
    ls_pool *pool;
    const char *at;
    int err = ls_pools_open((size_t)256 << 20, &pools);
    if (err < 0) return err;
    if ((err = ls_pool_open(pools, &pool)) < 0) goto fail_pools;
    ls_pool_enter(pool);
    err = ls_stress_deflate_open(&z);
    if (err == LS_OK) err = ls_stress_deflate_message(z, pool, plain, len, &at, packed_len);
    if (err == LS_OK) {
        *packed = z->sent.at;
        z->sent.at = NULL;
    }
    ls_stress_deflate_close(z);
    ls_pool_close(pool);
fail_pools:
    ls_pools_close(pools);
    return err;
}

int ls_stress_inflate_message(ls_stress_deflate *z, ls_pool *pool, const char *packed, size_t len, size_t bytes_max,
                              const char **plain, size_t *plain_len)
{
    ls_slices out = {.count = 0};
    ls_slice in = ls_slice_static(packed, len);
    if (len == 0 || len != z->packed.len || memcmp(packed, z->packed.at, len) != 0) {
        z->packed.len = 0;
        int err = ls_ws_inflate_message(pool, &z->deflate, &in, 1, bytes_max, &out);
        if (err == LS_OK) err = move(&z->plain, &out);
        if (err == LS_OK && !ls_stress_bytes_add(&z->packed, packed, len, SIZE_MAX)) err = LS_ENOMEM;
        if (err < 0) return err;
    }
    *plain = z->plain.at != NULL ? z->plain.at : "";
    *plain_len = z->plain.len;
    return LS_OK;
}
