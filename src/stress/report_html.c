/* report_html.c - the page with the run inside: the title, the JSON for its script, and the text report for browsers
 * without scripts. */
#include <string.h>

#include "stress/page.h"
#include "stress/report.h"

static void put_title(ls_strbuf *to, const ls_stress_result *r)
{
    ls_strbuf_html(to, r->config.target, strlen(r->config.target));
}

static void put_text(ls_strbuf *to, const ls_stress_result *r)
{
    ls_strbuf text = {0};
    ls_stress_report_head(&text, &r->config);
    ls_stress_report_text(&text, r);
    if (text.failed)
        to->failed = true;
    else
        ls_strbuf_html(to, text.bytes, text.len);
    ls_strbuf_close(&text);
}

void ls_stress_report_html(ls_strbuf *to, const ls_stress_result *r)
{
    static const struct {
        const char *mark;
        void (*put)(ls_strbuf *, const ls_stress_result *);
    } parts[] = {
        {LS_STRESS_PAGE_TITLE, put_title},
        {LS_STRESS_PAGE_TEXT, put_text},
        {LS_STRESS_PAGE_RUN, ls_stress_report_json},
    };
    const char *page = (const char *)ls_stress_page, *from = page;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *mark = strstr(from, parts[i].mark);
        if (mark == NULL) { /* a mark is missing in the page; the report fails */
            to->failed = true;
            return;
        }
        ls_strbuf_add(to, from, (size_t)(mark - from));
        parts[i].put(to, r);
        from = mark + strlen(parts[i].mark);
    }
    ls_strbuf_add(to, from, ls_stress_page_len - (size_t)(from - page));
}
