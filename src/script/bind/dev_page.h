/* dev_page.h - in dev mode pages reload themselves: a script is added to the HTML that handlers return. */
#ifndef LS_SCRIPT_DEV_PAGE_H
#define LS_SCRIPT_DEV_PAGE_H

#include "script/bind/listener.h"

/* Make `handler` one of dev mode: it adds the script to responses over HTTP/1.1 (not http.sys). */
void ls_dev_page_handler(ls_site_handler *handler);

/* Where the script goes into a page: before its last </body>, else its last </html> (case is ignored), else behind the
 * page if `document` or if the text begins as a document does. Returns the offset, or SIZE_MAX: nowhere. Pure. */
size_t ls_dev_page_place(const char *text, size_t len, bool document);

/* The nonce of a Content-Security-Policy, or NULL; *nonce_len receives its length. Pure. */
const char *ls_dev_page_nonce(const char *policy, size_t len, size_t *nonce_len);

#endif
