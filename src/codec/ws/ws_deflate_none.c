/* ws_deflate_none.c - a build without zlib: no store, so that no extension is negotiated and no message is
 * compressed. */
#include "base/err.h"
#include "codec/ws/ws_deflate.h"

const char *ls_ws_deflate_library(void)
{
    return NULL;
}

int ls_ws_deflate_store_open(uint64_t takeover_bytes_max, ls_ws_deflate_store **out)
{
    *out = NULL;
    return LS_OK;
}

void ls_ws_deflate_store_close(ls_ws_deflate_store *store)
{
}

uint64_t ls_ws_deflate_store_bytes(const ls_ws_deflate_store *store)
{
    return 0;
}

int ls_ws_deflate_begin(ls_ws_deflate_store *store, const ls_ws_deflate_params *params, uint32_t bytes_min,
                        bool client, ls_ws_deflate *out)
{
    return LS_ENOTSUP;
}

void ls_ws_deflate_end(ls_ws_deflate *d)
{
    *d = (ls_ws_deflate){.store = NULL};
}

int ls_ws_deflate_message(ls_pool *pool, ls_ws_deflate *d, const ls_slice *slices, unsigned count, size_t room,
                          ls_slices *out)
{
    return LS_EAGAIN;
}

int ls_ws_deflate_shared(ls_pool *pool, ls_ws_deflate_store *store, uint32_t bytes_min, const ls_slice *slices,
                         unsigned count, size_t room, ls_slices *out)
{
    ls_ws_deflate none = {.store = store, .bytes_min = bytes_min};
    return ls_ws_deflate_message(pool, &none, slices, count, room, out);
}

int ls_ws_inflate_message(ls_pool *pool, ls_ws_deflate *d, ls_slice *slices, unsigned count, uint64_t bytes_max,
                          ls_slices *out)
{
    ls_slices_drop(slices, count);
    return LS_ENOTSUP;
}
