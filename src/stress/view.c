/* view.c - one write per drawing: cursor up, then each line with "erase to the end of the line", so that nothing
 * flickers (ECMA-48 CUU, EL, ED). In a window that has become narrower the old lines are folded; then everything from
 * the first of them is erased before the drawing. */
#include "stress/view.h"

#include <string.h>

#include "base/terminal.h"
#include "stress/report.h"

enum {
    COLUMNS_MAX = 120, /* a wider bar shows no more */
    SPARKS_MAX = 40,
};

void ls_stress_view_open(ls_stress_view *view, FILE *to, bool quiet)
{
    *view = (ls_stress_view){.to = to, .kind = LS_STRESS_VIEW_NONE};
    if (quiet) return;
    view->kind = ls_is_terminal(to) ? LS_STRESS_VIEW_SCREEN : LS_STRESS_VIEW_LINES;
    view->utf8 = ls_terminal_utf8();
    view->color = !ls_terminal_no_color();
}

/* ---- one line of the screen: its bytes and its columns ---------------------------------------------------------- */

typedef struct line {
    ls_strbuf *to;
    unsigned used;
    unsigned columns;
} line;

static void put(line *l, const char *text)
{
    size_t len = strlen(text), room = l->columns - l->used;
    if (len > room) len = room;
    ls_strbuf_add(l->to, text, len);
    l->used += (unsigned)len;
}

/* Write the text completely or not at all. */
static void put_whole(line *l, const char *text)
{
    if (strlen(text) <= l->columns - l->used) put(l, text);
}

/* Write one column of several bytes. */
static void put_glyph(line *l, const char *glyph)
{
    if (l->used == l->columns) return;
    ls_strbuf_put(l->to, glyph);
    l->used++;
}

/* Write an SGR sequence, which takes no column. */
static void color(line *l, const ls_stress_view *view, const char *code)
{
    if (view->color) ls_strbuf_format(l->to, "\x1b[%sm", code);
}

static void end(line *l)
{
    ls_strbuf_put(l->to, "\n");
    l->used = 0;
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

static void time_left_text(char *buffer, size_t size, uint64_t ns)
{
    uint64_t s = ns / 1000000000;
    if (s < 60)
        snprintf(buffer, size, "%u.%us", (unsigned)s, (unsigned)(ns / 100000000 % 10));
    else if (s < 3600)
        snprintf(buffer, size, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    else
        snprintf(buffer, size, "%u:%02u:%02u", (unsigned)(s / 3600), (unsigned)(s / 60 % 60), (unsigned)(s % 60));
}

/* 0 to 1: of the duration or of the requests, the larger one. */
static double progress(const ls_stress_config *config, const ls_stress_live *live)
{
    double part = 0;
    if (config->duration_ns > 0) part = (double)live->elapsed_ns / (double)config->duration_ns;
    if (config->requests > 0) {
        double done = (double)live->ended / (double)config->requests;
        if (done > part) part = done;
    }
    return part < 1 ? part : 1;
}

static void put_bar(line *l, const ls_stress_view *view, double part, unsigned width)
{
    unsigned full = (unsigned)(part * width + 0.5);
    put(l, "[");
    color(l, view, "36");
    for (unsigned i = 0; i < full; i++)
        put_glyph(l, view->utf8 ? "\u2501" : i + 1 == full && full < width ? ">" : "=");
    color(l, view, "0");
    for (unsigned i = full; i < width; i++) put(l, " ");
    put(l, "]");
}

static void put_progress(line *l, const ls_stress_view *view, const ls_stress_config *config,
                         const ls_stress_live *live)
{
    enum { TEXT = 36, BAR_MIN = 8 };
    char text[96], elapsed[24], whole[24], left[24];
    double part = progress(config, live);
    time_left_text(elapsed, sizeof elapsed, live->elapsed_ns);
    if (config->duration_ns > 0) {
        uint64_t rest = config->duration_ns > live->elapsed_ns ? config->duration_ns - live->elapsed_ns : 0;
        time_left_text(whole, sizeof whole, config->duration_ns);
        time_left_text(left, sizeof left, rest);
        snprintf(text, sizeof text, " %3u%%  %s of %s, %s left", (unsigned)(100 * part), elapsed, whole, left);
    } else {
        snprintf(text, sizeof text, " %3u%%  %s", (unsigned)(100 * part), elapsed);
    }
    if (l->columns >= TEXT + BAR_MIN + 2) put_bar(l, view, part, l->columns - TEXT - 2);
    put(l, l->used > 0 ? text : text + 1);
    end(l);
}

static void put_counts(line *l, const ls_stress_view *view, const ls_stress_config *config, const ls_stress_live *live)
{
    typedef unsigned long long ull;
    char text[96], rate[48];
    snprintf(text, sizeof text, "%s/s", ls_stress_fixed_text(rate, sizeof rate, live->rate, 0));
    color(l, view, "1");
    put(l, text);
    color(l, view, "0");
    if (config->rate > 0 && config->stage_count == 0 && !config->fanout) { /* fan-out: the rate is of messages */
        snprintf(text, sizeof text, " of %s", ls_stress_fixed_text(rate, sizeof rate, config->rate, 0));
        put_whole(l, text);
    }
    uint64_t bad = live->errors + live->failed_status + live->checks_failed;
    if (bad > 0) color(l, view, "31");
    snprintf(text, sizeof text, "  %llu errors", (ull)live->errors);
    put_whole(l, text);
    if (live->failed_status > 0) {
        snprintf(text, sizeof text, ", %llu with status 400+", (ull)live->failed_status);
        put_whole(l, text);
    }
    if (live->checks_failed > 0) {
        snprintf(text, sizeof text, ", %llu failed checks", (ull)live->checks_failed);
        put_whole(l, text);
    }
    if (bad > 0) color(l, view, "0");
    snprintf(text, sizeof text, "  %llu requests", (ull)live->requests);
    put_whole(l, text);
    snprintf(text, sizeof text, "  %llu connections", (ull)live->connections);
    put_whole(l, text);
    end(l);
}

/* The p99 of the last seconds, relative to their maximum. */
static void put_sparks(line *l, const ls_stress_view *view, const ls_stress_point *points, size_t count)
{
    static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const ascii[] = {"_", ".", ".", ":", ":", "|", "|", "#"};
    size_t room = l->columns - l->used;
    if (room > SPARKS_MAX) room = SPARKS_MAX;
    size_t from = count > room ? count - room : 0;
    uint64_t most = 1;
    for (size_t i = from; i < count; i++) most = points[i].p99_ns > most ? points[i].p99_ns : most;
    color(l, view, "36");
    for (size_t i = from; i < count; i++) {
        size_t height = (size_t)((double)points[i].p99_ns / (double)most * 7.999);
        put_glyph(l, view->utf8 ? blocks[height] : ascii[height]);
    }
    color(l, view, "0");
}

static void put_latency(line *l, const ls_stress_view *view, const ls_stress_sampler *sampler)
{
    char text[96], p50[24], p99[24], max[24];
    size_t count;
    const ls_stress_point *points = ls_stress_sampler_points(sampler, &count);
    if (count == 0) {
        put(l, "latency: shown after 1 s");
        end(l);
        return;
    }
    const ls_stress_point *last = &points[count - 1];
    ls_stress_time_text(p50, sizeof p50, (double)last->p50_ns);
    ls_stress_time_text(p99, sizeof p99, (double)last->p99_ns);
    ls_stress_time_text(max, sizeof max, (double)last->max_ns);
    snprintf(text, sizeof text, "p50 %s  p99 %s", p50, p99);
    put(l, text);
    snprintf(text, sizeof text, "  max %s", max);
    put_whole(l, text);
    if (l->columns - l->used >= 12) {
        put(l, "  p99 ");
        put_sparks(l, view, points, count);
    }
    end(l);
}

void ls_stress_view_screen(ls_strbuf *to, const ls_stress_view *view, const ls_stress_sampler *sampler,
                           unsigned columns)
{
    const ls_stress_config *config = ls_stress_sampler_config(sampler);
    ls_stress_live live;
    ls_stress_sampler_live(sampler, &live);
    if (columns > COLUMNS_MAX) columns = COLUMNS_MAX;
    line l = {to, 0, columns};
    put_progress(&l, view, config, &live);
    put_counts(&l, view, config, &live);
    put_latency(&l, view, sampler);
}

void ls_stress_view_line(ls_strbuf *to, const ls_stress_sampler *sampler)
{
    typedef unsigned long long ull;
    const ls_stress_point *p = ls_stress_sampler_last(sampler);
    char p50[24] = "-", p99[24] = "-", max[24] = "-", number[48];
    if (p == NULL) return;
    if (p->max_ns > 0) {
        ls_stress_time_text(p50, sizeof p50, (double)p->p50_ns);
        ls_stress_time_text(p99, sizeof p99, (double)p->p99_ns);
        ls_stress_time_text(max, sizeof max, (double)p->max_ns);
    }
    double rate = (double)p->requests * 1e9 / (double)(p->to_ns - p->from_ns);
    ls_strbuf_format(to, "%5ss", ls_stress_fixed_text(number, sizeof number, (double)p->to_ns / 1e9, 0));
    ls_strbuf_format(to, "  %s requests/s", ls_stress_fixed_text(number, sizeof number, rate, 0));
    ls_strbuf_format(to, "  p50 %s  p99 %s  max %s  errors %llu", p50, p99, max, (ull)p->errors);
    if (p->failed_status > 0) ls_strbuf_format(to, "  status 400+ %llu", (ull)p->failed_status);
    ls_strbuf_put(to, "\n");
}

/* ---- drawing ---------------------------------------------------------------------------------------------------- */

/* The columns of a line: its characters without the color sequences. */
static unsigned width_of(const char *bytes, size_t len)
{
    unsigned width = 0;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\x1b') {
            while (i < len && bytes[i] != 'm') i++;
        } else if (((unsigned char)bytes[i] & 0xc0) != 0x80) { /* the first byte of a UTF-8 character */
            width++;
        }
    }
    return width;
}

static void go_to_first_line(ls_strbuf *to, const ls_stress_view *view, unsigned columns)
{
    unsigned up = 0;
    bool folded = false;
    if (view->lines == 0) return;
    for (unsigned i = 0; i < view->lines; i++) {
        /* A line that is too wide for the window takes several lines. */
        unsigned folds = view->widths[i] > columns ? (view->widths[i] + columns - 1) / columns : 1;
        folded = folded || folds > 1;
        up += folds;
    }
    ls_strbuf_format(to, "\x1b[%uA\r", up);
    if (folded) ls_strbuf_put(to, "\x1b[J");
}

static void draw_screen(ls_stress_view *view, const ls_stress_sampler *sampler)
{
    unsigned columns = ls_terminal_columns(view->to);
    ls_strbuf picture = {0}, out = {0};
    /* The last column stays empty: a terminal may fold a line that fills it. */
    ls_stress_view_screen(&picture, view, sampler, columns > 1 ? columns - 1 : 1);
    go_to_first_line(&out, view, columns);
    view->lines = 0;
    for (size_t at = 0; at < picture.len && view->lines < LS_STRESS_VIEW_LINES_MAX;) {
        const char *newline = memchr(picture.bytes + at, '\n', picture.len - at);
        size_t len = (size_t)(newline - (picture.bytes + at));
        ls_strbuf_add(&out, picture.bytes + at, len);
        ls_strbuf_put(&out, "\x1b[K\r\n");
        view->widths[view->lines++] = width_of(picture.bytes + at, len);
        at += len + 1;
    }
    if (!picture.failed && !out.failed) {
        fwrite(out.bytes, 1, out.len, view->to);
        fflush(view->to);
    }
    ls_strbuf_close(&picture);
    ls_strbuf_close(&out);
}

static void draw_line(ls_stress_view *view, const ls_stress_sampler *sampler)
{
    ls_strbuf text = {0};
    ls_stress_view_line(&text, sampler);
    if (!text.failed && text.len > 0) {
        fwrite(text.bytes, 1, text.len, view->to);
        fflush(view->to);
    }
    ls_strbuf_close(&text);
}

void ls_stress_view_draw(ls_stress_view *view, const ls_stress_sampler *sampler, bool closed)
{
    if (view->kind == LS_STRESS_VIEW_SCREEN)
        draw_screen(view, sampler);
    else if (view->kind == LS_STRESS_VIEW_LINES && closed)
        draw_line(view, sampler);
}

void ls_stress_view_close(ls_stress_view *view)
{
    if (view->kind == LS_STRESS_VIEW_SCREEN && view->lines > 0) {
        ls_strbuf out = {0};
        go_to_first_line(&out, view, ls_terminal_columns(view->to));
        ls_strbuf_put(&out, "\x1b[J");
        if (!out.failed) {
            fwrite(out.bytes, 1, out.len, view->to);
            fflush(view->to);
        }
        ls_strbuf_close(&out);
        view->lines = 0;
    }
    view->kind = LS_STRESS_VIEW_NONE;
}
