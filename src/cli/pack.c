/* pack.c - what `luaserve pack` and packed programs need of C. The archive is written by lua/luaserve/command/pack.lua. */
#include "cli/pack.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/io/path.h"
#include "cli/main.h"
#include "cli/parent.h"
#include "codec/coding/http_coding.h"
#include "codec/http_type.h"
#include "port/file/image.h"
#include "script/core/lua/push.h"
#include "server/program.h"

int ls_pack_open(void)
{
    char path[LS_PATH_BYTES];
    const char *why = "its path is unknown";
    int packed = ls_parent_program(path, sizeof path);
    for (char *at = path; packed == 0 && (at = strchr(at, '\\')) != NULL;) *at = '/';
    if (packed == 0) packed = ls_image_open(path, &why);
    if (packed >= 0) return packed;
    fprintf(stderr, "luaserve: %s: %s\n", path, why);
    return -1;
}

/* mark() -> the text by which the slot of a program is found */
static int pack_mark(lua_State *L)
{
    char mark[LS_IMAGE_MARK_BYTES];
    return ls_push_bytes(L, ls_image_mark(mark), sizeof mark);
}

/* sum(before, bytes) -> the checksum of all parts: image.h */
static int pack_sum(lua_State *L)
{
    size_t len;
    const uint64_t before = (uint64_t)luaL_checkinteger(L, 1);
    const char *bytes = luaL_checklstring(L, 2, &len);
    return ls_push_integer(L, (lua_Integer)ls_image_sum(before, bytes, len));
}

/* crc(bytes) -> the CRC-32 of ZIP (APPNOTE.TXT 4.4.7), which unzip checks */
static int pack_crc(lua_State *L)
{
    static uint32_t table[256];
    size_t len;
    const char *bytes = luaL_checklstring(L, 1, &len);
    for (uint32_t n = 0; n < 256; n++) {
        table[n] = n;
        for (unsigned bit = 0; bit < 8; bit++) table[n] = table[n] >> 1 ^ (table[n] & 1 ? UINT32_C(0xedb88320) : 0);
    }
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < len; i++) crc = crc >> 8 ^ table[(crc ^ (unsigned char)bytes[i]) & 255];
    return ls_push_integer(L, (lua_Integer)(crc ^ UINT32_MAX));
}

/* encode(coding, bytes) -> the bytes in the coding "gzip" or "br", as small as it makes them; nil: it is not built in */
static int pack_encode(lua_State *L)
{
    size_t len, taken, made = 0;
    const char *name = luaL_checkstring(L, 1), *bytes = luaL_checklstring(L, 2, &len);
    const ls_coding_type *type = ls_codings[ls_coding_find(name, strlen(name))];
    if (type->library == NULL) return 0;
    const size_t room = len + len / 8 + 1024; /* more than the codings need */
    char *out = lua_newuserdatauv(L, room, 0);
    void *encoder;
    if (type->encoder_open(&(ls_encode_hint){.level = type->level_max, .bytes = len}, &encoder) < 0)
        return luaL_error(L, "not enough memory");
    taken = len;
    made = room;
    const int err = type->encode(encoder, bytes, &taken, out, &made, LS_ENCODE_END);
    type->encoder_close(encoder);
    if (err < 0) return luaL_error(L, "%s: %s", name, ls_err_text(err));
    return ls_push_bytes(L, out, made);
}

/* save(path, list of strings) -> true | nil, message. The file can be run. */
static int pack_save(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const lua_Integer count = luaL_len(L, 2);
    ls_slice *slices = lua_newuserdatauv(L, (size_t)(count + 1) * sizeof *slices, 0);
    for (lua_Integer n = 1; n <= count; n++) {
        size_t len;
        lua_rawgeti(L, 2, n); /* the list keeps it */
        const char *bytes = luaL_checklstring(L, -1, &len);
        slices[n - 1] = ls_slice_static(bytes, len);
        lua_pop(L, 1);
    }
    const int err = ls_file_save(path, slices, (unsigned)count, LS_SAVE_PROGRAM);
    return err == LS_OK ? ls_push_boolean(L, true) : ls_push_nil_text(L, ls_err_text(err));
}

/* load(site, arguments) -> the text of description.files, after the site was loaded as with --check | nil, message */
static int pack_load(lua_State *L)
{
    char message[2048], *words[64];
    const lua_Integer count = luaL_len(L, 2);
    ls_server *server;
    if (count > 64) return ls_push_nil_text(L, "more than 64 arguments of the site");
    for (lua_Integer n = 1; n <= count; n++) {
        lua_rawgeti(L, 2, n);
        words[n - 1] = (char *)(uintptr_t)luaL_checkstring(L, -1);
        lua_pop(L, 1);
    }
    const ls_server_options options = {
        .size = sizeof options, .site = luaL_checkstring(L, 1), .argc = (int)count, .argv = words, .check = 1};
    if (ls_program_open(&options, NULL, &server, message, sizeof message) < 0) return ls_push_nil_text(L, message);
    char *files = ls_program_files(server);
    ls_server_close(server);
    lua_pushstring(L, files); /* NULL: nil, out of memory */
    free(files);
    return 1;
}

/* beneath(folder, path) -> whether no link in the path, which begins with the folder, leads out of the folder */
static int pack_beneath(lua_State *L)
{
    return ls_push_boolean(L, ls_path_check_beneath(luaL_checkstring(L, 1), luaL_checkstring(L, 2)) == LS_OK);
}

/* real(path) -> the absolute path of a folder, on POSIX without links and of a file too; or nil */
static int pack_real(lua_State *L)
{
    char absolute[LS_PATH_BYTES];
    return ls_path_absolute(luaL_checkstring(L, 1), absolute) ? ls_push_text(L, absolute) : 0;
}

/* own() -> the path of this program, or nil */
static int pack_own(lua_State *L)
{
    char path[LS_PATH_BYTES];
    return ls_parent_program(path, sizeof path) < 0 ? 0 : ls_push_text(L, path);
}

/* inside() -> list of { name =, bytes =, tag =, made = }: the files in this program */
static int pack_inside(lua_State *L)
{
    const ls_image_file *file;
    lua_newtable(L);
    for (size_t n = 0; (file = ls_image_file_at(n)) != NULL; n++) {
        lua_createtable(L, 0, 4);
        lua_pushlstring(L, file->name, file->name_len);
        lua_setfield(L, -2, "name");
        ls_set_integer(L, "bytes", (lua_Integer)file->bytes);
        ls_set_integer(L, "tag", (lua_Integer)file->tag);
        ls_set_boolean(L, "made", (file->flags & LS_IMAGE_MADE) != 0);
        lua_rawseti(L, -2, (lua_Integer)n + 1);
    }
    return 1;
}

/* type(path) -> the media type by the name */
static int pack_type(lua_State *L)
{
    return ls_push_text(L, ls_http_type_of(luaL_checkstring(L, 1)));
}

const luaL_Reg ls_pack_functions[] = {{"beneath", pack_beneath}, {"crc", pack_crc},   {"encode", pack_encode},
                                      {"inside", pack_inside},   {"load", pack_load}, {"mark", pack_mark},
                                      {"own", pack_own},         {"real", pack_real}, {"save", pack_save},
                                      {"sum", pack_sum},         {"type", pack_type}, {NULL, NULL}};
