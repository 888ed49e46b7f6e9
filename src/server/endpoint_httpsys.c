/* endpoint_httpsys.c - the endpoint of a listener with engine = "http.sys" (http/httpsys/httpsys.h). */
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "server/endpoint.h"

typedef struct httpsys_endpoint {
    ls_endpoint base; /* first */
    const ls_endpoint_env *env;
    ls_http_engine *http;
    char urls[LS_HTTPSYS_URLS_BYTES];
    bool started;
    const ls_http_handler *next_handler; /* prepared */
} httpsys_endpoint;

static httpsys_endpoint *of(ls_endpoint *e)
{
    return (httpsys_endpoint *)(void *)e;
}

static int httpsys_open(const ls_endpoint_want *want, ls_endpoint **out)
{
    const ls_endpoint_env *env = want->env;
    const ls_site_settings *settings = want->settings;
    const ls_site_listener *listener = ls_site_listener_get(want->site, want->index);
    httpsys_endpoint *h = calloc(1, sizeof *h);
    if (h == NULL) return LS_ENOMEM;
    h->env = env;
    memcpy(h->urls, listener->urls, sizeof h->urls);
    const ls_httpsys_options options = {.urls = h->urls,
                                        .config = &listener->http,
                                        .handler = ls_site_http_handler(want->site, want->index),
                                        .threads = env->threads_max,
                                        .receives = settings->accepts_posted * (2 * settings->threads + 6),
                                        .requests_max = env->limit->max};
    const int err = ls_httpsys_open(env->port, &options, &h->http, want->message, LS_MESSAGE_BYTES);
    if (err < 0)
        free(h);
    else
        *out = &h->base;
    return err;
}

static int httpsys_prepare(ls_endpoint *e, const ls_endpoint_want *want)
{
    httpsys_endpoint *h = of(e);
    h->next_handler = ls_site_http_handler(want->site, want->index);
    return h->http->ops->prepare(h->http, &ls_site_listener_get(want->site, want->index)->http);
}

static void httpsys_replace(ls_endpoint *e, uint64_t generation)
{
    httpsys_endpoint *h = of(e);
    (void)generation; /* the grace period of the generation covers the requests that begin now */
    h->http->ops->replace(h->http, h->next_handler);
}

static void httpsys_start(ls_thread_ctx *ctx, ls_endpoint *e)
{
    httpsys_endpoint *h = of(e);
    h->started = true;
    h->http->ops->start(ctx, h->http);
    for (const char *url = h->urls; *url != '\0'; url += strlen(url) + 1)
        ls_log(LS_LOG_INFO, "listening on %s with http.sys", url);
}

static void httpsys_stop(ls_thread_ctx *ctx, ls_endpoint *e)
{
    const httpsys_endpoint *h = of(e);
    if (h->started) (void)h->http->ops->drain(h->http, false); /* removes the URLs */
}

static uint32_t httpsys_drain(ls_endpoint *e, bool all)
{
    return of(e)->http->ops->drain(of(e)->http, all);
}

static void httpsys_abort(ls_endpoint *e)
{
    of(e)->http->ops->abort(of(e)->http);
}

static void httpsys_stat(const ls_endpoint *e, ls_http_stats *sum, ls_udp_stats *udp)
{
    const ls_http_engine *const http = ((const httpsys_endpoint *)(const void *)e)->http;
    http->ops->stat(http, sum);
}

static const char *httpsys_address(const ls_endpoint *e, unsigned n, char text[LS_ADDR_TEXT_BYTES])
{
    const char *url = ((const httpsys_endpoint *)(const void *)e)->urls;
    for (; n > 0 && *url != '\0'; n--) url += strlen(url) + 1;
    return *url != '\0' ? url : NULL;
}

static const char *httpsys_scheme(const ls_endpoint *e)
{
    return ""; /* the address is a URL */
}

static void httpsys_close(ls_endpoint *e)
{
    httpsys_endpoint *h = of(e);
    httpsys_stat(e, h->env->past, NULL);
    h->http->ops->close(h->http);
    free(h);
}

const ls_endpoint_ops ls_endpoint_httpsys = {
    .open = httpsys_open,
    .prepare = httpsys_prepare,
    .replace = httpsys_replace,
    .start = httpsys_start,
    .stop = httpsys_stop,
    .drain = httpsys_drain,
    .abort = httpsys_abort,
    .stat = httpsys_stat,
    .address = httpsys_address,
    .scheme = httpsys_scheme,
    .close = httpsys_close,
};
