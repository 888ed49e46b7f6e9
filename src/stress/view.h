/* view.h - the progress of a run, on stderr; stdout has the same lines as wrk.
 *
 * On a terminal the live view, three lines that are drawn again in place:
 *
 *     [=============>                 ]  44%  4.4s of 10.0s, 5.6s left
 *     19987/s  0 errors  88321 requests  64 connections
 *     p50 210us  p99 1.43ms  max 3.20ms  p99 ..:..||..
 *
 * The lines are cut to the window, which may be resized at any time. Elsewhere one line per second. Used by the thread
 * that ticks the sampler. */
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
    unsigned lines;                            /* lines on the screen that the next drawing overwrites */
    unsigned widths[LS_STRESS_VIEW_LINES_MAX]; /* columns of each of these lines */
} ls_stress_view;

/* Choose the kind of view by the stream and the environment; `quiet`: no view. Draws nothing yet. */
void ls_stress_view_open(ls_stress_view *view, FILE *to, bool quiet);

/* Draw after each ls_stress_sampler_tick(); `closed` is its result. */
void ls_stress_view_draw(ls_stress_view *view, const ls_stress_sampler *sampler, bool closed);

/* Remove the view from the terminal, so that the report replaces it. May be called twice. */
void ls_stress_view_close(ls_stress_view *view);

/* The output of ls_stress_view_draw(), for tests: the screen for a number of columns (at least 1; each line ends with
 * "\n" and is not wider), and the line of LS_STRESS_VIEW_LINES. */
void ls_stress_view_screen(ls_strbuf *to, const ls_stress_view *view, const ls_stress_sampler *sampler,
                           unsigned columns);
void ls_stress_view_line(ls_strbuf *to, const ls_stress_sampler *sampler);

#endif
