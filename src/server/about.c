/* about.c - what a program can ask: the version and the build, what a server serves and where; and the log. */
#include <stdio.h>
#include <string.h>

#include <lua.h>

#include "base/compiler.h"
#include "base/io/log.h"
#include "base/io/terminal.h"
#include "codec/coding/http_coding.h"
#include "http/http2/h2.h"
#include "http/httpsys/httpsys.h"
#include "luaserve.h"
#include "net/tls/tls.h"
#include "port/port.h"
#include "server/program.h"
#include "server/server_internal.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *ls_server_version(void)
{
    return LS_VERSION;
}

int ls_server_version_number(void)
{
    return LS_VERSION_NUMBER;
}

const char *ls_server_build(void)
{
    static LS_THREAD_LOCAL char text[1024];
    const char *tls = ls_tls_library(), *h2 = ls_h2_library(); /* these: of the shared libraries that run, not of the headers */
    char compression[100] = "", libraries[256];
    size_t at = 0;
    for (unsigned n = 0; n < LS_CODINGS; n++)
        if (ls_coding_built((enum ls_coding)n))
            at += (size_t)snprintf(compression + at, sizeof compression - at, "%s%s", at > 0 ? ", " : "",
                                   ls_codings[n]->library());
    ls_site_libraries(libraries, sizeof libraries);
    snprintf(text, sizeof text,
             "Lua: " LUA_RELEASE "\n"
             "JSON: lua-cjson\n"
             "names: " LS_RESOLVER "\n"
             "TLS: %s\n"
             "compression: %s\n"
             "HTTP/2: %s\n"
             "%s"
             "compiler: " COMPILER "\n"
             "HTTP engines: luaserve%s\n",
             tls != NULL ? tls : "not built in", at > 0 ? compression : "not built in",
             h2 != NULL ? h2 : "not built in", libraries,
             ls_httpsys_supported() ? " http.sys" : "");
    return text;
}

const char *ls_server_backends(void)
{
    return ls_port_backend();
}

/* ---- a server ----------------------------------------------------------------------------------------------- */

void ls_program_describe(const ls_server *server, bool as_json)
{
    if (!server->options.check) return;
    fflush(stdout);
    ls_site_describe(server->site, as_json, server->settings.threads, server->settings.threads_max);
}

char *ls_program_files(const ls_server *server)
{
    return ls_site_files(server->site);
}

void ls_server_describe(const ls_server *server)
{
    ls_program_describe(server, false);
}

void ls_program_log_hint(ls_server *server)
{
    bool serves = false;
    if (!ls_is_terminal(stderr)) return;
    ls_mutex_lock(&server->mutex);
    for (unsigned n = 0; n < ls_site_listener_count(server->site); n++)
        serves |= ls_site_listener_get(server->site, n)->kind != LS_SITE_TCP;
    if (serves && !ls_site_logs_requests(server->site))
        ls_log(LS_LOG_INFO,
               "requests are not logged: \"luaserve dev\" logs each one, a site logs them by ls.on(\"log\", fn)");
    ls_mutex_unlock(&server->mutex);
}

/* The text of address `index`; NULL: past the last one. It may be written into `text`. *scheme receives what precedes
 * it in a URL. */
static const char *address_text(const ls_server *server, unsigned index, char text[LS_ADDR_TEXT_BYTES],
                                const char **scheme)
{
    for (const ls_node *node = server->endpoints.next; node != &server->endpoints; node = node->next) {
        const ls_endpoint *e = LS_CONTAINER(node, ls_endpoint, node);
        const char *found;
        *scheme = e->ops->scheme(e);
        for (unsigned n = 0; (found = e->ops->address(e, n, text)) != NULL; n++)
            if (index-- == 0) return found;
    }
    return NULL;
}

/* Copy address `index`, in a URL with its scheme. */
static int address_copy(const ls_server *server, unsigned index, bool in_url, char *text, size_t bytes)
{
    char own[LS_ADDR_TEXT_BYTES];
    ls_mutex *const lists = (ls_mutex *)(uintptr_t)&server->lists; /* the server is const for its caller */
    const char *scheme;
    int err = LS_OK;
    ls_mutex_lock(lists);
    const char *found = address_text(server, index, own, &scheme);
    if (found == NULL)
        err = LS_ENOENT;
    else if (strlen(found) + (in_url ? strlen(scheme) : 0) >= bytes)
        err = LS_EMSGSIZE;
    else
        (void)snprintf(text, bytes, "%s%s", in_url ? scheme : "", found);
    ls_mutex_unlock(lists);
    return err;
}

int ls_server_address(const ls_server *server, unsigned index, char *text, size_t bytes)
{
    return address_copy(server, index, false, text, bytes);
}

int ls_server_url(const ls_server *server, unsigned index, char *text, size_t bytes)
{
    return address_copy(server, index, true, text, bytes);
}

/* ---- errors and the log ------------------------------------------------------------------------------------- */

const char *ls_error_text(int code)
{
    return ls_err_text(code);
}

int ls_server_log_level(const char *name)
{
    enum ls_log_level level;
    int err = ls_log_level_of(name, &level);
    if (err == LS_OK) ls_log_set_level(level);
    return err;
}

void ls_server_log_to(ls_server_log_fn *log, void *user)
{
    ls_log_set_sink(log, user);
}
