/* page.h - the page of the HTML report, kept in the program as bytes: page/report.html with its style and its script
 * inside. Generated at build time by page/embed.cmake; read-only, any thread. */
#ifndef LS_STRESS_PAGE_H
#define LS_STRESS_PAGE_H

#include <stddef.h>

/* Holds each of these once: where the title, the JSON and the printed report go. */
#define LS_STRESS_PAGE_TITLE "@TITLE@"
#define LS_STRESS_PAGE_RUN   "@RUN@"
#define LS_STRESS_PAGE_TEXT  "@TEXT@"

extern const unsigned char ls_stress_page[]; /* a zero follows the last byte */
extern const size_t ls_stress_page_len;

#endif
