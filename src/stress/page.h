/* page.h - the page of the HTML report: page/report.html with its style and its script, as bytes in the program.
 * lua/embed.lua generates it at build time. Read-only; any thread. */
#ifndef LS_STRESS_PAGE_H
#define LS_STRESS_PAGE_H

#include <stddef.h>

/* The page contains each of these marks once: the places of the title, the JSON and the text report. */
#define LS_STRESS_PAGE_TITLE "@TITLE@"
#define LS_STRESS_PAGE_RUN   "@RUN@"
#define LS_STRESS_PAGE_TEXT  "@TEXT@"

extern const unsigned char ls_stress_page[]; /* followed by a zero */
extern const size_t ls_stress_page_len;

#endif
