/* inflate.c - see inflate.h. */
#include "stress/inflate.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

typedef struct bytes {
    char *at;
    size_t len, room;
} bytes;

struct ls_stress_inflate {
    ls_ws_deflate_store *store;
    ls_ws_deflate deflate;
    bytes packed, plain; /* the last message; packed.len 0: none */
};

const ls_ws_deflate_options ls_stress_inflate_options = LS_WS_DEFLATE_OPTIONS;

int ls_stress_inflate_open(ls_stress_inflate **out)
{
    static const ls_ws_deflate_params params = {.server_bits = LS_WS_DEFLATE_BITS_MAX,
                                                .client_bits = LS_WS_DEFLATE_BITS_MAX};
    if (ls_ws_deflate_library() == NULL) return LS_ENOTSUP;
    ls_stress_inflate *z = calloc(1, sizeof *z);
    if (z == NULL) return LS_ENOMEM;
    int err = ls_ws_deflate_store_open(0, &z->store);
    if (err == LS_OK) err = ls_ws_deflate_begin(z->store, &params, LS_WS_DEFLATE_BYTES_MIN, true, &z->deflate);
    if (err < 0) {
        ls_stress_inflate_close(z);
        return err;
    }
    *out = z;
    return LS_OK;
}

void ls_stress_inflate_close(ls_stress_inflate *z)
{
    if (z == NULL) return;
    ls_ws_deflate_end(&z->deflate);
    ls_ws_deflate_store_close(z->store);
    free(z->packed.at);
    free(z->plain.at);
    free(z);
}

static bool reserve(bytes *b, size_t room)
{
    if (room <= b->room) return true;
    char *at = realloc(b->at, room);
    if (at == NULL) return false;
    b->at = at;
    b->room = room;
    return true;
}

int ls_stress_inflate_message(ls_stress_inflate *z, ls_pool *pool, const char *packed, size_t len, size_t bytes_max,
                              const char **plain, size_t *plain_len)
{
    ls_slices out = {.count = 0};
    ls_slice in = ls_slice_static(packed, len);
    if (len == 0 || len != z->packed.len || memcmp(packed, z->packed.at, len) != 0) {
        z->packed.len = 0;
        const int err = ls_ws_inflate_message(pool, &z->deflate, &in, 1, bytes_max, &out);
        if (err < 0) return err;
        if (!reserve(&z->packed, len) || !reserve(&z->plain, out.bytes)) {
            ls_slices_clear(&out);
            return LS_ENOMEM;
        }
        memcpy(z->packed.at, packed, len);
        z->packed.len = len;
        z->plain.len = 0;
        for (unsigned i = 0; i < out.count; i++) {
            const ls_slice *slice = &ls_slices_items(&out)[i];
            memcpy(z->plain.at + z->plain.len, slice->ptr, slice->len);
            z->plain.len += slice->len;
        }
        ls_slices_clear(&out);
    }
    *plain = z->plain.at != NULL ? z->plain.at : "";
    *plain_len = z->plain.len;
    return LS_OK;
}
