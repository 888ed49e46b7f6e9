/* counters.c - open and close the counters; the names of the errors. */
#include "stress/measure/counters.h"

#include <string.h>

#include "base/err.h"

int ls_stress_counters_open(ls_stress_counters *c, bool open_loop, bool tls, bool websocket)
{
    const struct {
        ls_histogram **at;
        bool used;
    } histograms[] = {{&c->sent, true},          {&c->due, open_loop}, {&c->lag, open_loop},
                      {&c->waiting, !open_loop}, {&c->handshake, tls}, {&c->upgrade, websocket}};
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++)
        if (histograms[i].used && (*histograms[i].at = ls_histogram_open()) == NULL) {
            ls_stress_counters_close(c);
            return LS_ENOMEM;
        }
    return LS_OK;
}

void ls_stress_counters_close(ls_stress_counters *c)
{
    ls_histogram_close(c->sent);
    ls_histogram_close(c->due);
    ls_histogram_close(c->lag);
    ls_histogram_close(c->waiting);
    ls_histogram_close(c->handshake);
    ls_histogram_close(c->upgrade);
    c->sent = c->due = c->lag = c->waiting = c->handshake = c->upgrade = NULL;
}

static const struct {
    const char *name;
    const char *text;
} errors[LS_STRESS_ERROR_KINDS] = {
#define X(id, name, text) {name, text},
    LS_STRESS_ERRORS(X)
#undef X
};

const char *ls_stress_error_name(ls_stress_error kind)
{
    return errors[kind].name;
}

const char *ls_stress_error_text(ls_stress_error kind)
{
    return errors[kind].text;
}
