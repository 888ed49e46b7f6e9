/* cache_object.c - the cache of app:proxy (http/proxy/response_cache.h) for lua/luaserve/proxy_cache.lua, which
 * decides what is stored and for how long.
 *
 * A hit is one call, core.cache_serve: the stored lines become those of the response, and its body is sent from where
 * it lies. It belongs to the exchange; Lua sees nothing of it. A fill belongs to its task: when that ends first,
 * nothing is stored, and the handle that Lua has of it raises from then on. Thread: the one that holds the state's
 * actor. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "codec/http_chars.h"
#include "codec/http_range.h"
#include "codec/http_text.h"
#include "http/coding/coding_filter.h"
#include "http/proxy/response_cache.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/req.h"
#include "script/bind/http/respond.h"
#include "script/bind/option.h"
#include "script/bind/proxy/proxy_object.h"
#include "script/core/runtime.h"
#include "script/core/wait.h"

static const ls_object_type cache_type = {.name = "cache"};

typedef struct cache_handle {
    const void *tag;
    ls_response_cache *cache;
    int keyed; /* the site makes the keys: 1: they say what a response depends on, but for Authorization and Cookie; 2: also for Cookie */
} cache_handle;

enum fill_state { FILL_OPEN, FILL_STORED, FILL_ENDED };

typedef struct fill_call {
    const void *tag;
    ls_task_end end;
    ls_proxy_tap tap; /* of the call whose response is stored */
    ls_fill *fill;    /* of FILL_OPEN */
    ls_stored *made;  /* NULL: nothing is stored. Without its body until that is whole */
    enum fill_state state;
    bool removes; /* it is a removal */
    int keyed;    /* as of its cache */
} fill_call;

static cache_handle *check_cache(lua_State *L, int index)
{
    return ls_object_check(L, index, sizeof(cache_handle), &cache_type);
}

#define IS(name, len, literal) ls_text_same(name, len, literal, sizeof(literal) - 1)

static bool next_line(ls_text lines, size_t *at, ls_pair *out)
{
    return ls_lines_next(lines.ptr, lines.len, at, out);
}

static bool has_name(ls_text lines, const char *wanted)
{
    ls_pair line;
    for (size_t at = 0; next_line(lines, &at, &line);)
        if (ls_text_same(line.name, line.name_len, wanted, strlen(wanted))) return true;
    return false;
}

static bool is_of_content(const ls_pair *field)
{
    return field->name_len > 8 && ls_text_same(field->name, 8, "content-", 8);
}

/* ---- the key ---------------------------------------------------------------------------------------------------- */

typedef struct key {
    size_t len;
    char text[LS_CACHE_KEY_BYTES_MAX];
} key;

static void add(key *to, const char *bytes, size_t len)
{
    const size_t left = to->len <= sizeof to->text ? sizeof to->text - to->len : 0;
    if (len <= left && to->len <= sizeof to->text) {
        memcpy(to->text + to->len, bytes, len);
        to->len += len;
    } else {
        to->len = sizeof to->text + 1; /* too long, see make_key; nothing fits any more */
    }
}

/* Whether a field of that name, which passes, may change what the server takes for the URL or the method: what a trusted
 * proxy says about the origin, or the fields by which servers let any client replace them. */
static bool is_of_target(const char *name, size_t len, bool trusting)
{
    static const char *const any[] = {"x-original-", "x-rewrite-", "x-host", "x-http-method", "x-method-override"};
    if (ls_proxy_name_begins(name, len, "x-forwarded-", 12)) return trusting && !IS(name, len, "x-forwarded-for");
    if (trusting && IS(name, len, "forwarded")) return true;
    for (size_t n = 0; n < sizeof any / sizeof any[0] && ls_char_lower(*name) == 'x'; n++)
        if (ls_proxy_name_begins(name, len, any[n], strlen(any[n]))) return true;
    return false;
}

/* The line, or path and query (ptr NULL); a line feed; and what the server may see of the origin: scheme and host, and the
 * fields that may change them. false: it is too long. */
static bool make_key(const ls_request *r, ls_text line, key *to)
{
    const ls_exchange *x = r->x;
    const ls_http_head *head = &x->head;
    const bool trusting = ls_request_trusting(r) != NULL;
    to->len = 0;
    if (line.ptr != NULL) {
        add(to, line.ptr, line.len);
    } else {
        if (head->path_is_root) add(to, "/", 1);
        add(to, x->bytes + head->path.at, head->path.len);
        if (head->has_query) add(to, "?", 1);
        add(to, x->bytes + head->query.at, head->query.len);
    }
    add(to, x->secure ? "\nhttps://" : "\nhttp://", x->secure ? 9 : 8);
    add(to, x->bytes + head->host.at, head->host.len);
    for (uint32_t n = 0; n < head->field_count; n++) {
        const ls_http_field *field = &head->fields[n];
        if (!is_of_target(x->bytes + field->name.at, field->name.len, trusting)) continue;
        add(to, "\n", 1);
        add(to, x->bytes + field->name.at, field->name.len);
        add(to, ":", 1);
        add(to, x->bytes + field->value.at, field->value.len);
    }
    return to->len <= sizeof to->text;
}

/* The key at `index`, or that of the request. */
static bool take_key(lua_State *L, int index, const ls_request *r, key *to)
{
    if (lua_isnoneornil(L, index)) return make_key(r, (ls_text){NULL, 0}, to);
    const ls_text given = ls_check_text(L, index);
    to->len = 0;
    add(to, given.ptr, given.len);
    return to->len <= sizeof to->text;
}

/* ---- the response of an entry ----------------------------------------------------------------------------------- */

/* Add the lines of the entry. Fields of the response that middleware has set stay, as for a response of the server; a
 * 304 has none of the content (RFC 9110 section 15.4.5). */
static int put_lines(ls_request *r, const ls_stored *entry)
{
    ls_exchange *x = r->x;
    const uint32_t own = x->fields_len;
    ls_pair field;
    int err = LS_OK;
    x->may_have_server = true;
    if (own == 0 && x->status != 304) return ls_exchange_lines(r->state->ctx, x, entry->lines.ptr, entry->lines.len);
    for (size_t at = 0, from = 0; err == LS_OK && next_line(entry->lines, &at, &field); from = at) {
        if (x->status == 304 && is_of_content(&field) && !IS(field.name, field.name_len, "content-location")) continue;
        if (!ls_proxy_is_own(x, own, field.name, field.name_len))
            err = ls_exchange_lines(r->state->ctx, x, entry->lines.ptr + from, at - from);
    }
    return err;
}

/* Add Age and Cache-Status (RFC 9211). */
static int put_age(ls_request *r, const ls_stored *entry, const char *how)
{
    char text[160];
    const int64_t age_ms = ls_response_cache_now_ms() - entry->fresh.born_ms;
    const int len = snprintf(text, sizeof text, "Age: %lld\r\nCache-Status: luaserve; %s; ttl=%lld\r\n",
                             (long long)(age_ms > 0 ? age_ms / 1000 : 0), how,
                             (long long)((entry->fresh.lifetime_ms - age_ms) / 1000));
    return ls_exchange_lines(r->state->ctx, r->x, text, (size_t)len);
}

/* Apply the conditions of the client and its Range to a response 200. LS_OK, and the status and *part are set;
 * LS_E*. */
static int apply_conditions(ls_request *r, const ls_stored *entry, ls_range *part)
{
    ls_exchange *x = r->x;
    ls_conditions c;
    ls_range ranges[LS_RANGES_MAX];
    unsigned count;
    char value[LS_CONTENT_RANGE_BYTES];
    ls_conditions_of(&x->head, x->bytes, &c);
    if (!c.any) return LS_OK;
    const int64_t now_s = ls_clock_wall_s();
    const enum ls_condition condition = ls_condition_evaluate(&c, &entry->validators, now_s);
    if (condition != LS_CONDITION_HOLDS) x->status = condition == LS_CONDITION_FAILED ? 412 : 304;
    if (x->status != 200 || c.range == NULL || x->head.method != LS_HTTP_GET ||
        !ls_condition_range_applies(&c, &entry->validators, now_s))
        return LS_OK;
    const enum ls_range_result result =
        ls_range_parse(x->bytes + c.range->value.at, c.range->value.len, entry->body.len, ranges, &count);
    if (result == LS_RANGE_WHOLE || (result == LS_RANGE_PARTIAL && count > 1)) return LS_OK; /* RFC 9110 14.2 */
    x->status = result == LS_RANGE_PARTIAL ? 206 : 416;
    if (x->status == 206) *part = ranges[0];
    const size_t len = ls_content_range(x->status == 206 ? part : NULL, entry->body.len, value);
    return ls_exchange_header(r->state->ctx, x, "Content-Range", 13, value, len, true);
}

/* Make the entry the response. LS_OK, or LS_E*: nothing was sent. */
static int respond(ls_request *r, const ls_stored *entry, const char *how)
{
    ls_exchange *x = r->x;
    ls_range part = {0, entry->body.len};
    x->status = entry->status;
    x->type = NULL;
    x->length = -1;
    r->status_set = true;
    int err = x->status == 200 ? apply_conditions(r, entry, &part) : LS_OK;
    if (err == LS_OK && (x->status == 412 || x->status == 416)) {
        (void)ls_request_respond_text(r, x->status);
        return LS_OK;
    }
    if (err == LS_OK) err = put_lines(r, entry);
    if (err == LS_OK) err = put_age(r, entry, how);
    if (err < 0) return err;
    x->has_date = x->has_date || entry->has_date;
    x->has_type = x->has_type || (entry->has_type && x->status != 304);
    ls_slice slice = {entry->body.block, entry->body.ptr, (size_t)part.bytes};
    if (slice.len > 0) {
        slice.ptr += part.from;
        (void)ls_block_hold(slice.block);
    }
    (void)ls_exchange_respond(r->state->ctx, x, &slice, slice.len > 0);
    return LS_OK;
}

static int served(lua_State *L, ls_request *r)
{
    return ls_push_boolean(L, true);
}

static int served_stale(lua_State *L, ls_request *r)
{
    key k;
    lua_pushliteral(L, "refresh");
    return make_key(r, (ls_text){NULL, 0}, &k) ? 1 + ls_push_bytes(L, k.text, k.len) : 1; /* else the caller has one */
}

/* Drop the reference to the entry of `respond`, and return when the response is queued. May wait. */
static int finish(lua_State *L, ls_request *r, ls_stored *entry, int err, int (*done)(lua_State *L, ls_request *r))
{
    ls_stored_drop(entry);
    if (err < 0) return luaL_error(L, "app:proxy: a stored response: %s", ls_err_text(err));
    return ls_coding_filter_waits(r->x) ? ls_response_coding_finish(L, r, done) : done(L, r);
}

/* ---- look up ---------------------------------------------------------------------------------------------------- */

/* The field of the table at `index`, which holds it; empty without one. */
static ls_text text_field(lua_State *L, int index, const char *name)
{
    ls_text text = {"", 0};
    if (lua_isnoneornil(L, index)) return text;
    luaL_checktype(L, index, LUA_TTABLE);
    lua_pushstring(L, name);
    if (lua_rawget(L, index) == LUA_TSTRING) text.ptr = lua_tolstring(L, -1, &text.len);
    lua_pop(L, 1);
    return text;
}

/* The request of the client with the changes at `index`: nil, or { lines =, drops = }. */
static ls_selecting selecting(lua_State *L, int index, const ls_exchange *x, bool trusted)
{
    return (ls_selecting){.x = x,
                          .filter = {.drops = text_field(L, index, "drops"), .trusted = trusted},
                          .lines = text_field(L, index, "lines")};
}

static bool has_field(const ls_exchange *x, const char *name)
{
    return ls_http_head_find(&x->head, x->bytes, name, strlen(name)) != NULL;
}

/* The field of the request for which an entry that is not for all may not be used, or {NULL, 0}. */
static ls_text personal(int keyed, const ls_selecting *by, ls_text select)
{
    const ls_text name = ls_select_personal(by, select);
    const bool given = has_field(by->x, "authorization") || has_name(by->lines, "authorization") ||
                       (keyed < 2 && (has_field(by->x, "cookie") || has_name(by->lines, "cookie")));
    return keyed > 0 && !given ? (ls_text){NULL, 0} : name;
}

static bool is_usable(const ls_stored *entry, int keyed, const ls_selecting *by)
{
    return entry->fresh.for_all || personal(keyed, by, entry->select).ptr == NULL;
}

/* The limit at `index`, in seconds, as milliseconds. */
static int64_t limit_ms(lua_State *L, int index, int64_t without)
{
    const lua_Number seconds = luaL_optnumber(L, index, -1);
    return seconds < 0 ? without : seconds > 1e12 ? INT64_MAX / 4 : (int64_t)(seconds * 1000);
}

typedef struct limits { /* of a request */
    int64_t age_ms, left_ms, stale_ms;
    bool given;
} limits;

static const limits no_limits = {INT64_MAX / 2, 0, 0, false};

/* Whether the entry may be served. *refresh: it is stale, and should be refreshed meanwhile. */
static bool may_serve(const ls_stored *entry, const limits *of, bool *refresh)
{
    const ls_freshness *f = &entry->fresh;
    const int64_t age_ms = ls_response_cache_now_ms() - f->born_ms, left_ms = f->lifetime_ms - age_ms;
    *refresh = false;
    if (age_ms > of->age_ms || (left_ms > 0 && left_ms < of->left_ms)) return false;
    if (left_ms > 0) return true;
    if (f->strict) return false;
    *refresh = !of->given && -left_ms < f->refresh_ms;
    return *refresh || -left_ms < of->stale_ms;
}

/* core.cache_serve(res, cache, key|nil, changes|nil [, age_max, fresh_min, stale_max]) -> true: the stored response is
 * the response | "refresh", key: the same, and the caller should get it again; `key`: without one of its own | nil,
 * why not: "method", "bypass", "asks", "uri-miss", "vary-miss", "stale". "asks": the request has Cache-Control; the
 * limits of the second call, in seconds, are what it says (RFC 9111 section 5.2.1). changes: see selecting(). May
 * wait. */
static int cache_serve(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    const cache_handle *handle = check_cache(L, 2);
    const ls_http_head *head = &r->x->head;
    const ls_selecting by = selecting(L, 4, r->x, ls_request_trusting(r) != NULL);
    ls_stored *entry;
    int (*done)(lua_State *, ls_request *);
    key k;
    bool refresh;
    if (head->method != LS_HTTP_GET && head->method != LS_HTTP_HEAD) return ls_push_nil_text(L, "method");
    if (head->has_body || head->upgrade || !take_key(L, 3, r, &k)) return ls_push_nil_text(L, "bypass");
    if (lua_gettop(L) < 7 && (has_field(r->x, "cache-control") || has_field(r->x, "pragma")))
        return ls_push_nil_text(L, "asks");
    const limits of = {limit_ms(L, 5, no_limits.age_ms), limit_ms(L, 6, 0), limit_ms(L, 7, 0), !lua_isnoneornil(L, 6)};
    const int found = ls_response_cache_find(handle->cache, (ls_text){k.text, k.len}, &by, &entry);
    if (found != LS_OK) return ls_push_nil_text(L, found == LS_ECHANGED ? "vary-miss" : "uri-miss");
    const bool usable = is_usable(entry, handle->keyed, &by);
    if (!usable || !may_serve(entry, &of, &refresh)) {
        ls_stored_drop(entry);
        return ls_push_nil_text(L, usable ? "stale" : "bypass");
    }
    done = refresh && ls_stored_refresh(entry) ? served_stale : served;
    return finish(L, r, entry, respond(r, entry, "hit"), done);
}

/* ---- fills ------------------------------------------------------------------------------------------------------ */

static void end_fill(fill_call *call, ls_stored *entry, bool apart)
{
    ls_task_end_remove(&call->end);
    ls_proxy_tap_remove(&call->tap);
    if (call->state == FILL_OPEN) ls_fill_end(call->fill, entry, apart);
    call->state = FILL_ENDED;
    if (call->made != NULL) ls_stored_drop(call->made);
    call->made = NULL;
}

static void task_ended(ls_task_end *end)
{
    end_fill(LS_CONTAINER(end, fill_call, end), NULL, false);
}

static int drop_fill(lua_State *L)
{
    end_fill(lua_touserdata(L, 1), NULL, false);
    return 0;
}

static const ls_object_type fill_type = {.name = "fill", .drop = drop_fill};

/* The fill at `index`, also one that has stored its response. */
static fill_call *check_unended(lua_State *L, int index)
{
    fill_call *call = ls_object_check(L, index, sizeof *call, &fill_type);
    luaL_argcheck(L, call->state != FILL_ENDED, index, "the fill has ended");
    return call;
}

static fill_call *check_fill(lua_State *L, int index)
{
    fill_call *call = check_unended(L, index);
    luaL_argcheck(L, call->state == FILL_OPEN && !call->removes, index, "the fill has stored its response");
    return call;
}

static const ls_wait_kind wait_kind = {.cancel = ls_response_cache_cancel, .wait = LS_WAIT_WRITE};

static int waited(lua_State *L, int status, lua_KContext context)
{
    const int result = ls_wait_end(L, (ls_wait *)context, NULL); /* NOLINT(performance-no-int-to-ptr) */
    if (ls_state_of(L)->current->cpu_exceeded) ls_state_end_run(L);
    return ls_push_text(L, result == LS_OK ? "again" : "late");
}

/* Push a handle without a fill, of the current task. */
static fill_call *push_fill(lua_State *L)
{
    fill_call *call = ls_object_push(L, sizeof *call, 0, &fill_type);
    call->end.run = task_ended;
    call->state = FILL_ENDED;
    return call;
}

/* Begin: NULL is a fill for which there was no memory. */
static void begin_fill(lua_State *L, fill_call *call, ls_fill *fill)
{
    if (fill == NULL) luaL_error(L, "not enough memory");
    call->fill = fill;
    call->state = FILL_OPEN;
    ls_task_end_add(ls_state_of(L)->current, &call->end);
}

/* core.cache_claim(res|nil, cache, key|nil, changes|nil, body_bytes_max, wait_s|nil, anyway) -> a fill | "again":
 * another one has ended | "late": it has not ended for wait_s seconds. Without wait_s, a fill of its own. `anyway`:
 * although a fresh entry is there. wait_s false: it was late, and no one waits for the other one any longer. Without
 * res, that of a copy: with a key that ends with NUL, and wait_s. May wait. */
static int cache_claim(lua_State *L)
{
    ls_request *r = lua_isnil(L, 1) ? NULL : ls_res_check_open(L);
    const cache_handle *handle = check_cache(L, 2);
    ls_response_cache *cache = handle->cache;
    const size_t body_bytes_max = (size_t)luaL_checkinteger(L, 5);
    const bool late = lua_isboolean(L, 6);
    const double wait_s = late ? -1 : luaL_optnumber(L, 6, -1);
    ls_stored *entry = NULL;
    ls_fill *fill = NULL;
    key k;
    bool refresh;
    ls_text text = {k.text, 0};
    if (r == NULL)
        text = ls_check_text(L, 3);
    else if (take_key(L, 3, r, &k))
        text.len = k.len;
    else
        return luaL_error(L, "the key is too long");
    luaL_argcheck(L, wait_s >= 0 || (r != NULL && (text.len == 0 || text.ptr[text.len - 1] != '\0')), 6,
                  "the fill of a copy waits");
    if (late) ls_response_cache_part(cache, text);
    ls_task_may_wait(L);
    lua_settop(L, 7);
    fill_call *call = push_fill(L);
    ls_wait *wait = wait_s >= 0 ? ls_wait_begin(L, &wait_kind, cache) : NULL;
    if (ls_response_cache_claim(cache, text, body_bytes_max, wait != NULL ? &wait->waiter : NULL, &fill) ==
        LS_CACHE_WAITS)
        return ls_wait_suspend(L, wait, wait_s, false, waited);
    if (wait != NULL) ls_wait_drop(wait);
    begin_fill(L, call, fill);
    call->keyed = handle->keyed;
    /* After the claim: what another fill has stored before it is found. */
    const ls_selecting by =
        r != NULL ? selecting(L, 4, r->x, ls_request_trusting(r) != NULL) : (ls_selecting){.x = NULL};
    if (r != NULL && ls_response_cache_find(cache, text, &by, &entry) == LS_OK) {
        if (is_usable(entry, call->keyed, &by)) {
            call->fill->validates = entry;
        } else {
            ls_stored_drop(entry);
            entry = NULL;
        }
    }
    if (!lua_toboolean(L, 7) && entry != NULL && may_serve(entry, &no_limits, &refresh) &&
        !refresh) { /* since the caller has looked */
        end_fill(call, NULL, false);
        lua_pushliteral(L, "again");
    }
    return 1;
}

/* ---- what is stored --------------------------------------------------------------------------------------------- */

/* The number of lines with that name and value. */
static unsigned count_lines(ls_text lines, const ls_pair *field)
{
    ls_pair line;
    unsigned count = 0;
    for (size_t at = 0; next_line(lines, &at, &line);)
        count += ls_text_same(line.name, line.name_len, field->name, field->name_len) &&
                 line.value_len == field->value_len && memcmp(line.value, field->value, line.value_len) == 0;
    return count;
}

/* Whether the field of the response is one that it had before those of the server, which may have an equal one. */
static bool is_own(const ls_exchange *x, ls_text own, const ls_pair *field)
{
    const unsigned count = count_lines(own, field);
    const ls_text before = {x->fields->data, (size_t)(field->name - x->fields->data)};
    return count > 0 && count > count_lines(before, field);
}

/* The entry that a response 304 validates; NULL: it is another response. */
static ls_stored *validated(const fill_call *call, const ls_exchange *x)
{
    return x->status == 304 ? call->fill->validates : NULL;
}

static size_t stored_room(const fill_call *call, const ls_exchange *x)
{
    const ls_stored *entry = validated(call, x);
    return x->fields_len + (entry != NULL ? entry->lines.len : 0);
}

/* Write the lines of the response that are stored: not those it had before, nor Age. A 304 updates those of the entry,
 * but what describes the content (RFC 9111 section 3.2). `out` has stored_room bytes. Returns their length. */
static size_t stored_lines(const fill_call *call, const ls_proxy_pause *p, char *out)
{
    const ls_exchange *x = p->x;
    const ls_stored *entry = validated(call, x);
    ls_pair field;
    size_t len = 0;
    for (size_t at = 0, from = 0; entry != NULL && next_line(entry->lines, &at, &field); from = at) {
        if (!is_of_content(&field) && ls_exchange_has_field(x, field.name, field.name_len)) continue;
        memcpy(out + len, entry->lines.ptr + from, at - from);
        len += at - from;
    }
    for (size_t at = 0, from = 0; ls_exchange_next_field(x, &at, &field); from = at) {
        if (IS(field.name, field.name_len, "age") || is_own(x, p->own_fields, &field)) continue;
        if (entry != NULL && is_of_content(&field)) continue;
        memcpy(out + len, field.name, at - from);
        len += at - from;
    }
    return len;
}

/* core.cache_lines(fill [, call]) -> the lines "Name: value\r\n"... that would be stored of the response of the call,
 * whose head was taken; or those of the entry that may be validated; nil: no entry. */
static int cache_lines(lua_State *L)
{
    const fill_call *call = check_fill(L, 1);
    const ls_stored *entry = call->fill->validates;
    luaL_Buffer text;
    if (lua_isnoneornil(L, 2)) return entry != NULL ? ls_push_bytes(L, entry->lines.ptr, entry->lines.len) : 0;
    const ls_proxy_pause p = ls_proxy_pause_of(ls_proxy_check_paused(L, 2));
    char *const to = luaL_buffinitsize(L, &text, stored_room(call, p.x));
    luaL_pushresultsize(&text, stored_lines(call, &p, to));
    return 1;
}

/* Store the response before the client has its last part: who has all of it finds it stored. */
static void collect(ls_proxy_tap *tap, const ls_slice *slices, unsigned count, bool last)
{
    fill_call *call = LS_CONTAINER(tap, fill_call, tap);
    for (unsigned n = 0; n < count; n++) ls_fill_add(call->fill, slices[n].ptr, slices[n].len);
    if (!last) return;
    ls_fill_store(call->fill, call->made);
    call->state = FILL_STORED;
}

/* The ages and lifetimes at `index`. */
static ls_freshness check_freshness(lua_State *L, int index)
{
    static const ls_option options[] = {LS_OPTION_AS("age_ms", ls_freshness, born_ms),
                                        LS_OPTION(ls_freshness, lifetime_ms),
                                        LS_OPTION(ls_freshness, refresh_ms),
                                        LS_OPTION(ls_freshness, error_ms),
                                        LS_OPTION(ls_freshness, strict),
                                        LS_OPTION(ls_freshness, for_all),
                                        LS_OPTIONS_END};
    ls_freshness fresh = {0};
    luaL_checktype(L, index, LUA_TTABLE);
    ls_options_read(L, index, options, &fresh);
    fresh.born_ms = ls_response_cache_now_ms() - fresh.born_ms;
    return fresh;
}

/* core.cache_keep(fill, call, facts, vary, changes|nil) -> whether the response of the call, whose head was taken,
 * will be stored: by cache_end if it validates an entry, else with its last byte. facts: ages and lifetimes, see
 * ls_freshness; vary: names of fields, between commas. Not a body that ends with the connection: it may be cut off.
 * Nor one whose server has said something about caches that is not among the fields. false, name: nor one that the
 * field of that name may make a response to this client. */
static int cache_keep(lua_State *L)
{
    fill_call *call = check_fill(L, 1);
    ls_proxy *proxy = ls_proxy_check_paused(L, 2);
    const ls_proxy_pause p = ls_proxy_pause_of(proxy);
    const ls_exchange *x = p.x;
    const ls_stored *entry = validated(call, x);
    char values[LS_CACHE_KEY_BYTES_MAX];
    ls_text select = {values, 0};
    ls_slice body = {NULL, NULL, 0};
    luaL_Buffer text;
    luaL_argcheck(L, call->made == NULL, 1, "the fill has a response");
    const ls_freshness fresh = check_freshness(L, 3);
    const ls_text vary = ls_check_text(L, 4);
    const ls_selecting by = selecting(L, 5, x, p.trusted);
    select.len = ls_select_make(&by, vary.ptr, vary.len, values, sizeof values);
    const bool shared = fresh.for_all || select.len > sizeof values;
    const ls_text own = shared ? (ls_text){NULL, 0} : personal(call->keyed, &by, select);
    if (own.ptr != NULL) {
        lua_pushboolean(L, false);
        return 1 + ls_push_bytes(L, own.ptr, own.len);
    }
    char *const to = luaL_buffinitsize(L, &text, stored_room(call, x));
    const ls_text lines = {to, stored_lines(call, &p, to)};
    if (select.len > sizeof values || (entry == NULL && p.ends_with_stream) ||
        (x->length >= 0 && (uint64_t)x->length > call->fill->body_bytes_max) ||
        (p.overruled && !has_name(lines, "cache-control")))
        return ls_push_boolean(L, false);
    if (entry != NULL) body = entry->body;
    if (body.block != NULL) (void)ls_block_hold(body.block);
    call->made =
        ls_stored_make(entry != NULL ? entry->status : x->status, &fresh, call->fill->key, select, lines, &body);
    if (call->made != NULL && entry == NULL) {
        call->tap.take = collect;
        ls_proxy_tap_set(proxy, &call->tap);
    }
    luaL_pushresultsize(&text, 0);
    return ls_push_boolean(L, call->made != NULL);
}

/* core.cache_stale(fill) -> whether the stored response may stand for an error (RFC 5861 section 4). */
static int cache_stale(lua_State *L)
{
    const ls_stored *entry = check_fill(L, 1)->fill->validates;
    const ls_freshness *f = entry != NULL ? &entry->fresh : NULL;
    return ls_push_boolean(L, f != NULL && !f->strict &&
                                  ls_response_cache_now_ms() - f->born_ms - f->lifetime_ms < f->error_ms);
}

/* core.cache_end(res|nil, fill, stored, apart, how): end the fill; `stored`: put what cache_keep has made of a
 * validated entry; `apart`: see response_cache.h. With res, respond with the new entry, or without one with the old
 * one: -> true; `how`: for Cache-Status. May wait. */
static int cache_end(lua_State *L)
{
    ls_request *r = lua_isnil(L, 1) ? NULL : ls_res_check_open(L);
    fill_call *call = check_unended(L, 2);
    const bool apart = lua_toboolean(L, 4), open = call->state == FILL_OPEN;
    const bool has_body = !open || call->tap.take == NULL;
    const char *how = luaL_optstring(L, 5, "hit");
    ls_stored *made = lua_toboolean(L, 3) && has_body ? call->made : NULL;
    ls_stored *entry = made != NULL ? made : r != NULL && open ? call->fill->validates : NULL;
    luaL_argcheck(L, r == NULL || entry != NULL, 2, "the fill has no response");
    if (r != NULL) (void)ls_block_hold(ls_external_block(&entry->external));
    end_fill(call, made, apart);
    return r != NULL ? finish(L, r, entry, respond(r, entry, how), served) : 0;
}

/* ---- entries for a second store --------------------------------------------------------------------------------- */

/* core.cache_key(res, line|nil) -> the key of the request, whose first line is this one; nil: that of the request, if
 * it has none of its own | nil: it is too long */
static int cache_key(lua_State *L)
{
    key k;
    size_t len;
    const char *line = luaL_optlstring(L, 2, NULL, &len);
    if (!make_key(ls_request_check_res(L, 1), (ls_text){line, len}, &k)) return 0;
    return ls_push_bytes(L, k.text, k.len);
}

typedef struct listed {
    unsigned count;
    ls_stored *entries[LS_VARIANTS_MAX];
} listed;

static void set_text(lua_State *L, const char *name, const char *bytes, size_t len)
{
    lua_pushlstring(L, bytes, len);
    lua_setfield(L, -2, name);
}

/* (listed) -> the list */
static int push_list(lua_State *L)
{
    const listed *list = lua_touserdata(L, 1);
    lua_createtable(L, (int)list->count, 0);
    for (unsigned n = 0; n < list->count; n++) {
        const ls_stored *e = list->entries[n];
        lua_newtable(L);
        ls_set_integer(L, "status", e->status);
        ls_set_integer(L, "age_ms", ls_response_cache_now_ms() - e->fresh.born_ms);
        ls_set_integer(L, "lifetime_ms", e->fresh.lifetime_ms);
        ls_set_integer(L, "refresh_ms", e->fresh.refresh_ms);
        ls_set_integer(L, "error_ms", e->fresh.error_ms);
        ls_set_boolean(L, "strict", e->fresh.strict);
        ls_set_boolean(L, "for_all", e->fresh.for_all);
        set_text(L, "key", e->key.ptr, e->key.len);
        set_text(L, "select", e->select.ptr, e->select.len);
        set_text(L, "lines", e->lines.ptr, e->lines.len);
        set_text(L, "body", e->body.ptr, e->body.len);
        lua_rawseti(L, -2, n + 1);
    }
    return 1;
}

/* core.cache_list(cache, key) -> the entries of the key, a list of { status =, key =, select =, lines =, body =, and
 * the facts of cache_keep }. */
static int cache_list(lua_State *L)
{
    listed list;
    const ls_text of_key = ls_check_text(L, 2);
    ls_response_cache *cache = check_cache(L, 1)->cache;
    luaL_checkstack(L, 2, NULL);
    list.count = ls_response_cache_list(cache, of_key, list.entries);
    const int status = ls_pcall(L, push_list, &list, 1); /* the references are dropped also without memory */
    for (unsigned n = 0; n < list.count; n++) ls_stored_drop(list.entries[n]);
    return status == LUA_OK ? 1 : lua_error(L);
}

/* core.cache_restore(fill, status, facts, key, select, lines, body) -> whether an entry of cache_list is valid and
 * restored, see ls_fill_restore */
static int cache_restore(lua_State *L)
{
    ls_fill *fill = check_fill(L, 1)->fill;
    const lua_Integer status = luaL_checkinteger(L, 2);
    const ls_freshness fresh = check_freshness(L, 3);
    const ls_text of_key = ls_check_text(L, 4), select = ls_check_text(L, 5), lines = ls_check_text(L, 6);
    const ls_text body = ls_check_text(L, 7);
    ls_stored *entry = status == (int)status ? ls_stored_read((int)status, &fresh, of_key, select, lines, body) : NULL;
    const bool restored = entry != NULL && ls_fill_restore(fill, entry);
    if (entry != NULL) ls_stored_drop(entry);
    return ls_push_boolean(L, restored);
}

/* core.cache_copied(cache, bytes [, base]) -> the bytes of the copies, and those that were written: see ls_copied */
static int cache_copied(lua_State *L)
{
    ls_copied *copied = ls_response_cache_copied(check_cache(L, 1)->cache);
    const int64_t bytes = luaL_checkinteger(L, 2), written = atomic_fetch_add(&copied->written, bytes) + bytes;
    if (!lua_isnoneornil(L, 3)) atomic_store(&copied->base, luaL_checkinteger(L, 3));
    lua_pushinteger(L, atomic_load(&copied->base) + written);
    lua_pushinteger(L, written);
    return 2;
}

/* core.cache_name(text) -> 32 hexadecimal digits, the same in all processes */
static int cache_name(lua_State *L)
{
    static const uint64_t seeds[2][2] = {{0, 0}, {1, 1}};
    const ls_text text = ls_check_text(L, 1);
    char name[33];
    (void)snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)ls_hash(seeds[0], text.ptr, text.len),
                   (unsigned long long)ls_hash(seeds[1], text.ptr, text.len));
    return ls_push_text(L, name);
}

/* core.cache_remove(cache, prefix, holds) -> the number of entries whose keys begin with it, and if it `holds` the
 * removal, which cache_end ends */
static int cache_remove(lua_State *L)
{
    ls_response_cache *cache = check_cache(L, 1)->cache;
    const ls_text prefix = ls_check_text(L, 2);
    const bool holds = lua_toboolean(L, 3);
    unsigned count;
    if (holds) ls_task_may_wait(L);
    fill_call *call = holds ? push_fill(L) : NULL;
    ls_fill *const removal = ls_response_cache_remove(cache, prefix, &count);
    if (call != NULL) {
        call->removes = true;
        begin_fill(L, call, removal);
    } else if (removal != NULL) {
        ls_fill_end(removal, NULL, false);
    }
    lua_pushinteger(L, count);
    if (holds) lua_rotate(L, -2, 1);
    return holds ? 2 : 1;
}

/* core.cache_await(removal) -> whether it has waited for a copy that was being written, and there may be another */
static int cache_await(lua_State *L)
{
    const fill_call *call = check_unended(L, 1);
    luaL_argcheck(L, call->removes, 1, "removal expected");
    ls_wait *wait = ls_wait_begin(L, &wait_kind, call->fill->cache);
    if (ls_removal_wait(call->fill, &wait->waiter) == LS_CACHE_WAITS)
        return ls_wait_suspend(L, wait, -1, false, waited);
    ls_wait_drop(wait);
    return ls_push_boolean(L, false);
}

/* core.cache(name, bytes_max, keyed|nil) -> cache; `keyed`: as in cache_handle */
static int core_cache(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const size_t bytes_max = (size_t)luaL_checkinteger(L, 2);
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *object;
    cache_handle *handle = ls_object_push(L, sizeof *handle, 0, &cache_type);
    if (ls_shared_get(ls_state_runtime(ls_state_of(L))->shared, &ls_response_cache_kind, name, "", &bytes_max, &object,
                      before) < 0)
        return luaL_error(L, "not enough memory");
    handle->cache = (ls_response_cache *)(void *)object;
    handle->keyed = (int)lua_tointeger(L, 3);
    return 1;
}

static const luaL_Reg functions[] = {
    {"cache", core_cache},        {"cache_serve", cache_serve},     {"cache_claim", cache_claim},
    {"cache_lines", cache_lines}, {"cache_keep", cache_keep},       {"cache_stale", cache_stale},
    {"cache_end", cache_end},     {"cache_remove", cache_remove},   {"cache_key", cache_key},
    {"cache_list", cache_list},   {"cache_restore", cache_restore}, {"cache_copied", cache_copied},
    {"cache_name", cache_name},   {"cache_await", cache_await},     {NULL, NULL}};

const ls_module ls_cache_module = {.name = "cache", .functions = functions};
