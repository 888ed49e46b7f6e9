/* options.c - see options.h. */
#include "server/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/io/log.h"
#include "base/os/thread.h"

enum { THREADS_MAX_DEFAULT = 128 /* at least */ };

int ls_server_explain(int err, char *message, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, bytes, format, args);
    va_end(args);
    return err;
}

int ls_server_check_options(const ls_server_options *given, ls_server_options *full, char *message,
                            size_t message_bytes)
{
    enum ls_log_level level;
    if (given->size == 0)
        return ls_server_explain(LS_EINVAL, message, message_bytes,
                                 "options.size is 0: set it to sizeof(ls_server_options)");
    if (given->size > sizeof *given)
        return ls_server_explain(
            LS_EINVAL, message, message_bytes,
            "options.size is %zu, but the options of luaserve %s have %zu bytes: the program needs "
            "the library of a later version",
            given->size, LS_VERSION, sizeof *given);
    memcpy(full, given, given->size);
    if (full->site == NULL) return ls_server_explain(LS_EINVAL, message, message_bytes, "options.site is missing");
    if (full->threads > LS_SERVER_THREADS_MAX)
        return ls_server_explain(LS_EINVAL, message, message_bytes,
                                 "options.threads is %u: set it to at most %d, or to 0 for one per processor",
                                 full->threads, LS_SERVER_THREADS_MAX);
    if (full->log_level != NULL && ls_log_level_of(full->log_level, &level) < 0)
        return ls_server_explain(LS_EINVAL, message, message_bytes,
                                 "options.log_level is \"%s\": set it to debug, info, warn, error or off",
                                 full->log_level);
    if (full->source != NULL && full->source_bytes == 0) full->source_bytes = strlen(full->source);
    return LS_OK;
}

static char *copy_text(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

int ls_server_copy_options(const ls_server_options *options, ls_server_options *own)
{
    *own = *options;
    own->argc = 0;
    own->control = options->control != NULL ? copy_text(options->control) : NULL;
    own->site = copy_text(options->site);
    own->argv = calloc((size_t)options->argc + 1, sizeof *own->argv);
    own->source = options->source != NULL ? malloc(options->source_bytes + 1) : NULL;
    own->listen_on = options->listen_on != NULL ? copy_text(options->listen_on) : NULL;
    if (own->site == NULL || own->argv == NULL || (options->source != NULL && own->source == NULL)) return LS_ENOMEM;
    if ((options->listen_on != NULL && own->listen_on == NULL) || (options->control != NULL && own->control == NULL))
        return LS_ENOMEM;
    if (options->source != NULL) memcpy((char *)(uintptr_t)own->source, options->source, options->source_bytes);
    for (; own->argc < options->argc; own->argc++)
        if ((own->argv[own->argc] = copy_text(options->argv[own->argc])) == NULL) return LS_ENOMEM;
    return LS_OK;
}

void ls_server_free_options(ls_server_options *own)
{
    for (int n = 0; own->argv != NULL && n < own->argc; n++) free(own->argv[n]);
    free(own->argv);
    free((char *)(uintptr_t)own->source);
    free((char *)(uintptr_t)own->listen_on);
    free((char *)(uintptr_t)own->site);
    free((char *)(uintptr_t)own->control);
}

ls_site_settings ls_server_merge_settings(const ls_server_options *options, const ls_site_settings *site)
{
    ls_site_settings s = *site;
    if (options->threads > 0) s.threads = options->threads;
    if (s.threads == 0) {
        s.threads = ls_cpu_count();
        if (s.threads_max > 0 && s.threads > s.threads_max) s.threads = s.threads_max;
    }
    if (s.threads_max == 0) s.threads_max = 2 * s.threads > THREADS_MAX_DEFAULT ? 2 * s.threads : THREADS_MAX_DEFAULT;
    if (s.connections_max == 0) s.connections_max = 65536;
    if (s.pool_bytes_max == 0) s.pool_bytes_max = UINT64_C(256) << 20;
    if (s.drain_ms_max == 0) s.drain_ms_max = 15000;
    if (s.old_sites_max == 0) s.old_sites_max = 4;
    if (s.accepts_posted == 0) s.accepts_posted = 4;
    if (s.backlog == 0) s.backlog = 1024;
    return s;
}
