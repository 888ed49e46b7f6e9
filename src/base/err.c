/* err.c - the table of err.h as two look-ups. Pure; any thread. */
#include "base/err.h"

const char *ls_err_name(int err)
{
    switch (err) {
#define X(name, number, text) \
    case LS_##name: return #name;
        LS_ERRORS(X)
#undef X
    default: return "ESYS";
    }
}

const char *ls_err_text(int err)
{
    switch (err) {
#define X(name, number, text) \
    case LS_##name: return text;
        LS_ERRORS(X)
#undef X
    default: return "the system refused, for a reason outside this table";
    }
}
