/* log.c - formats one event as one line: level filter, length limit, escapes. The sink writes the line.
 *
 * The line is built on the caller's stack, so that logging works when memory has run out. */
#include "base/io/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/escape.h"
#include "base/io/log_stderr.h"
#include "base/text.h"

enum { LINE_BYTES_MAX = 16 * 1024, PLACES = 256, PAUSE_S = 60, SECOND_BITS = 24 };
static const char truncated_mark[] = " [truncated]";

/* Global, like the allocator hook: the sink and the level. Set before threads start. */
static _Atomic(ls_log_sink *) the_sink = ls_log_stderr;
static _Atomic(void *) the_user = NULL;
static _Atomic int the_level = LS_LOG_INFO;
static _Atomic bool masks_addresses, is_json;

static LS_THREAD_LOCAL const ls_log_target *own; /* NULL: those of the process */

const ls_log_target *ls_log_use(const ls_log_target *target)
{
    const ls_log_target *before = own;
    own = target;
    return before;
}

void ls_log_set_sink(ls_log_sink *sink, void *user)
{
    atomic_store(&the_user, user);
    atomic_store(&the_sink, sink != NULL ? sink : ls_log_stderr);
}

void ls_log_set_level(enum ls_log_level level)
{
    atomic_store_explicit(&the_level, (int)level, memory_order_relaxed);
}

enum ls_log_level ls_log_level_get(void)
{
    if (own != NULL && own->level >= 0) return (enum ls_log_level)own->level;
    return (enum ls_log_level)atomic_load_explicit(&the_level, memory_order_relaxed);
}

static const char *const level_names[] = {"debug", "info", "warn", "error", "off"};

int ls_log_level_of(const char *name, enum ls_log_level *out)
{
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum ls_log_level)i;
            return LS_OK;
        }
    }
    return LS_EINVAL;
}

const char *ls_log_level_name(enum ls_log_level level)
{
    return level_names[level];
}

static bool dropped(enum ls_log_level level)
{
    return level < ls_log_level_get() || level >= LS_LOG_OFF;
}

/* As ls_escape_character; a line break is indented, and a tab remains. */
static size_t put_character(char out[LS_ESCAPE_BYTES_MAX + 1], const char *text, size_t len, size_t *taken)
{
    if (text[0] != '\n' && text[0] != '\t') return ls_escape_character(out, text, len, taken);
    *taken = 1;
    return (size_t)snprintf(out, 3, text[0] == '\n' ? "\n\t" : "\t");
}

static void keep(ls_log_kept *kept, const char *line, size_t len)
{
    ls_mutex_lock(&kept->mutex);
    const unsigned n = ++kept->count % LS_LOG_KEPT;
    kept->at[n].at_us = ls_clock_wall_us();
    if (len > LS_LOG_KEPT_BYTES)
        for (len = LS_LOG_KEPT_BYTES; ((unsigned char)line[len] & 0xC0) == 0x80;) len--; /* whole characters */
    kept->at[n].len = len;
    memcpy(kept->at[n].text, line, kept->at[n].len);
    ls_mutex_unlock(&kept->mutex);
}

static LS_THREAD_LOCAL struct about {
    char id[LS_LOG_ID_BYTES_MAX];
    uint8_t len; /* 0: of no request */
    bool all;
} about;

void ls_log_set_json(bool json)
{
    atomic_store(&is_json, json);
}

bool ls_log_is_json(void)
{
    return atomic_load_explicit(&is_json, memory_order_relaxed);
}

void ls_log_about(const char *id, size_t len, bool all)
{
    if (!ls_log_is_json() || len > sizeof about.id) return;
    memcpy(about.id, id, len);
    about.len = (uint8_t)len;
    about.all = all;
}

static bool names_request(const char *text, size_t len)
{
    if (about.len == 0 || about.all) return about.len > 0;
    for (size_t at = 0; at + about.len <= len; at++)
        if (memcmp(text + at, about.id, about.len) == 0) return true;
    return false;
}

/* What follows the time. */
static void emit_json(enum ls_log_level level, const char *text, size_t len, bool truncated)
{
    char line[LINE_BYTES_MAX];
    const size_t room = sizeof line - sizeof "\",\"truncated\":true}";
    size_t used = (size_t)snprintf(line, sizeof line, "\"level\":\"%s\",", ls_log_level_name(level));
    if (names_request(text, len))
        used += (size_t)snprintf(line + used, sizeof line - used, "\"request_id\":\"%.*s\",", (int)about.len, about.id);
    about.len = 0;
    used += (size_t)snprintf(line + used, sizeof line - used, "\"message\":\"");
    for (size_t at = 0, taken; at < len; at += taken) {
        char form[LS_ESCAPE_BYTES_MAX + 1];
        const size_t n = ls_escape_json(form, text + at, len - at, &taken);
        if (used + n > room) {
            truncated = true;
            break;
        }
        memcpy(line + used, form, n);
        used += n;
    }
    used += (size_t)snprintf(line + used, sizeof line - used, truncated ? "\",\"truncated\":true}" : "\"}");
    ls_log_stderr((int)level, line, used, NULL);
}

static void emit(enum ls_log_level level, const char *text, size_t len, bool truncated)
{
    char line[LINE_BYTES_MAX];
    const size_t room = sizeof line - (sizeof truncated_mark - 1);
    size_t used = 0, fits = 0; /* fits: longest prefix that leaves room for the mark */
    while (len > 0 && text[len - 1] == '\n') len--;
    for (size_t at = 0, taken; at < len; at += taken) {
        char form[LS_ESCAPE_BYTES_MAX + 1];
        const size_t n = put_character(form, text + at, len - at, &taken);
        if (used + n > sizeof line) {
            truncated = true;
            break;
        }
        memcpy(line + used, form, n);
        used += n;
        if (used <= room) fits = used;
    }
    if (truncated) {
        memcpy(line + fits, truncated_mark, sizeof truncated_mark - 1);
        used = fits + sizeof truncated_mark - 1;
    }
    if (own != NULL && own->kept != NULL && level == LS_LOG_ERROR) keep(own->kept, line, used);
    if (own != NULL && own->sink != NULL) {
        own->sink((int)level, line, used, own->user);
        return;
    }
    ls_log_sink *const sink = atomic_load(&the_sink);
    if (sink == ls_log_stderr && ls_log_is_json())
        emit_json(level, text, len, truncated);
    else
        sink((int)level, line, used, atomic_load(&the_user));
}

void ls_log(enum ls_log_level level, const char *format, ...)
{
    if (dropped(level)) return;
    char text[LINE_BYTES_MAX + 1];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) return; /* only for a wide character that cannot be encoded; the program prints none */
    const bool truncated = (size_t)n >= sizeof text;
    emit(level, text, truncated ? sizeof text - 1 : (size_t)n, truncated);
}

void ls_log_text(enum ls_log_level level, const char *text, size_t len)
{
    if (!dropped(level)) emit(level, text, len, false);
}

void ls_log_mask_addresses(bool mask)
{
    atomic_store_explicit(&masks_addresses, mask, memory_order_relaxed);
}

bool ls_log_masks_addresses(void)
{
    return atomic_load_explicit(&masks_addresses, memory_order_relaxed);
}

/* A place has a slot: the upper bits of its hash, and the second of its last line. Another place with the same slot takes
 * it, and the first one has a line more. */
bool ls_log_is_due(const char *place)
{
    static _Atomic uint64_t slots[PLACES];
    const uint64_t mask = (UINT64_C(1) << SECOND_BITS) - 1, hash = ls_text_hash(place, strlen(place)),
                   now = ls_clock_coarse_ms() / 1000 & mask;
    _Atomic uint64_t *slot = &slots[hash % PLACES];
    uint64_t before = atomic_load(slot);
    if (((before ^ hash) & ~mask) == 0 && ((now - before) & mask) < PAUSE_S) return false;
    return atomic_compare_exchange_strong(slot, &before, (hash & ~mask) | now);
}
