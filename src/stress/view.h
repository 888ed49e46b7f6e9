/* view.h - what is shown while a run goes on.
 *
 * On a terminal three lines that are drawn again in place:
 *
 *     [=============>                 ]  44%  4.4s of 10s, 5.6s left
 *     19987/s   88321 requests   64 connections   0 errors
 *     p50 0.21ms  p99 1.43ms  max 3.20ms   p99 by seconds ..:..||..
 *
 * cut to the window, which may be resized meanwhile. Elsewhere one line a second. It goes to stderr, so that what is
 * printed on stdout is what wrk prints there. The thread that ticks the sampler. */
#ifndef LS_STRESS_VIEW_H
#define LS_STRESS_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include "stress/sampler.h"
#include "stress/strbuf.h"

enum { LS_STRESS_VIEW_LINES_MAX = 3 };

typedef enum ls_stress_view_kind {
    LS_STRESS_VIEW_NONE, /* --quiet */
    LS_STRESS_VIEW_LINES,
    LS_STRESS_VIEW_SCREEN,
} ls_stress_view_kind;

typedef struct ls_stress_view {
    FILE *to;
    ls_stress_view_kind kind;
    bool utf8;
    bool color;
    unsigned lines;                            /* drawn, and to be drawn over */
    unsigned widths[LS_STRESS_VIEW_LINES_MAX]; /* columns that each of them takes */
} ls_stress_view;

/* Looks at the stream and the environment; `quiet`: show nothing. Nothing is drawn yet. */
void ls_stress_view_open(ls_stress_view *view, FILE *to, bool quiet);

/* After each ls_stress_sampler_tick(); `closed` is what that returned. Where nobody looks it does next to nothing. */
void ls_stress_view_draw(ls_stress_view *view, const ls_stress_sampler *sampler, bool closed);

/* Takes the view off the terminal, so that the report stands where it was. May be called twice. */
void ls_stress_view_close(ls_stress_view *view);

/* What ls_stress_view_draw() writes: the lines of the screen for so many columns (each ended by "\n", no wider than
 * that; 1 at least), and the one line of LS_STRESS_VIEW_LINES. For tests. */
void ls_stress_view_screen(ls_strbuf *to, const ls_stress_view *view, const ls_stress_sampler *sampler,
                           unsigned columns);
void ls_stress_view_line(ls_strbuf *to, const ls_stress_sampler *sampler);

#endif
