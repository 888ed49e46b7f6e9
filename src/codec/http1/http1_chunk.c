/* http1_chunk.c - the chunked coding as a state machine: one byte per step, payload in one step per run.
 *
 *   size line:  HEXDIG+ chunk-ext CR LF               then `left` bytes of payload, CR LF, the next size line
 *   chunk-ext:  *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )
 *   last chunk: a size of 0, then trailer lines  name ':' value CR LF, then CR LF
 *
 * Extensions are checked and skipped. An extension that is not valid could hide the end of the line from another
 * recipient, or from this one. 15 digits give at most 2^60 - 1, so `left` cannot overflow. */
#include "codec/http1/http1_chunk.h"

#include "base/err.h"
#include "codec/http_chars.h"

enum { DIGITS_MAX = 15 };

enum state {
    AT_SIZE,           /* before or among the digits */
    AT_EXT,            /* white space after the size or a value: a ';' must follow */
    AT_EXT_NAME_FIRST, /* after the ';' */
    AT_EXT_NAME,
    AT_EXT_NAME_END,    /* white space after a name: '=' or ';' must follow */
    AT_EXT_VALUE_FIRST, /* after the '=' */
    AT_EXT_VALUE,
    AT_EXT_QUOTED,
    AT_EXT_QUOTED_PAIR, /* after the backslash */
    AT_EXT_QUOTED_END,  /* after the second quote */
    AT_SIZE_LF,         /* after the CR of a size line */
    AT_DATA,            /* `left` bytes of payload follow */
    AT_DATA_CR,         /* the payload is complete */
    AT_DATA_LF,
    AT_LINE, /* at the start of a trailer line, or of the empty line; the states after it are those of the trailers */
    AT_NAME,
    AT_VALUE,
    AT_VALUE_LF,
    AT_LAST_LF, /* after the CR of the empty line */
    AT_END
};

void ls_chunks_init(ls_chunks *chunks)
{
    *chunks = (ls_chunks){.state = AT_SIZE};
}

/* The state after the byte `c` after a whole size, name or value; AT_END: the byte is not allowed there.
 * `at_white_space`: the state after white space. */
static enum state extension_continues(char c, enum state at_white_space)
{
    switch (c) {
    case '\r': return AT_SIZE_LF;
    case ';': return AT_EXT_NAME_FIRST;
    case ' ':
    case '\t': return at_white_space;
    default: return AT_END;
    }
}

/* The state after the byte `c` of the extensions; AT_END: the byte is not allowed there. */
static enum state extension_state(enum state state, char c)
{
    const bool white_space = c == ' ' || c == '\t', token = ls_char_is(c, LS_CHAR_TOKEN);
    switch (state) {
    case AT_EXT: return c == '\r' ? AT_END : extension_continues(c, AT_EXT);
    case AT_EXT_NAME_FIRST: return token ? AT_EXT_NAME : white_space ? AT_EXT_NAME_FIRST : AT_END;
    case AT_EXT_NAME:
        if (token) return AT_EXT_NAME;
        return c == '=' ? AT_EXT_VALUE_FIRST : extension_continues(c, AT_EXT_NAME_END);
    case AT_EXT_NAME_END:
        if (c == '=') return AT_EXT_VALUE_FIRST;
        return c == '\r' ? AT_END : extension_continues(c, AT_EXT_NAME_END);
    case AT_EXT_VALUE_FIRST:
        if (c == '"') return AT_EXT_QUOTED;
        return token ? AT_EXT_VALUE : white_space ? AT_EXT_VALUE_FIRST : AT_END;
    case AT_EXT_VALUE: return token ? AT_EXT_VALUE : extension_continues(c, AT_EXT);
    case AT_EXT_QUOTED:
        if (c == '"') return AT_EXT_QUOTED_END;
        if (c == '\\') return AT_EXT_QUOTED_PAIR;
        return ls_char_is(c, LS_CHAR_VALUE) ? AT_EXT_QUOTED : AT_END;
    case AT_EXT_QUOTED_PAIR: return ls_char_is(c, LS_CHAR_VALUE) ? AT_EXT_QUOTED : AT_END;
    default: return extension_continues(c, AT_EXT); /* AT_EXT_QUOTED_END */
    }
}

/* Process one byte of the size line. Returns NULL or an error text. */
static const char *size_byte(ls_chunks *chunks, char c)
{
    enum state next;
    if (chunks->state == AT_SIZE_LF) {
        if (c != '\n') return "bare CR in a chunk size line";
        chunks->state = chunks->left > 0 ? AT_DATA : AT_LINE;
        chunks->digits = 0;
        chunks->line_bytes = 0;
        return NULL;
    }
    if (chunks->state == AT_SIZE && ls_char_is(c, LS_CHAR_HEX)) {
        if (chunks->digits == DIGITS_MAX) return "chunk size too large";
        chunks->digits++;
        chunks->left = chunks->left << 4 | ls_char_hex_value(c);
        return NULL;
    }
    if (chunks->state == AT_SIZE) {
        next = chunks->digits > 0 ? extension_continues(c, AT_EXT) : AT_END;
        if (next == AT_END) return "bad chunk size";
    } else {
        next = extension_state((enum state)chunks->state, c);
        if (next == AT_END) return "bad chunk extension";
    }
    chunks->state = (uint8_t)next;
    if (next != AT_SIZE_LF && ++chunks->line_bytes > LS_CHUNK_EXT_BYTES_MAX) return "chunk extension too long";
    return NULL;
}

/* Process one byte of the trailer section. Returns NULL or an error text. */
static const char *trailer_byte(ls_chunks *chunks, char c)
{
    if (++chunks->line_bytes > LS_CHUNK_TRAILER_BYTES_MAX) return "trailers too large";
    switch (chunks->state) {
    case AT_LINE:
        if (c == '\r') {
            chunks->state = AT_LAST_LF;
            return NULL;
        }
        if (!ls_char_is(c, LS_CHAR_TOKEN)) return "bad trailer name";
        if (chunks->trailers == LS_CHUNK_TRAILERS_MAX) return "too many trailers";
        chunks->trailers++;
        chunks->state = AT_NAME;
        return NULL;
    case AT_NAME:
        if (c == ':')
            chunks->state = AT_VALUE;
        else if (!ls_char_is(c, LS_CHAR_TOKEN))
            return "bad trailer name";
        return NULL;
    case AT_VALUE:
        if (c == '\r')
            chunks->state = AT_VALUE_LF;
        else if (!ls_char_is(c, LS_CHAR_VALUE))
            return "bad trailer value";
        return NULL;
    default: /* AT_VALUE_LF, AT_LAST_LF */
        if (c != '\n') return "bare CR in the trailers";
        chunks->state = chunks->state == AT_LAST_LF ? AT_END : AT_LINE;
        return NULL;
    }
}

/* Process one byte outside the payload. Returns NULL or an error text. */
static const char *framing_byte(ls_chunks *chunks, char c)
{
    switch (chunks->state) {
    case AT_DATA_CR: chunks->state = AT_DATA_LF; return c == '\r' ? NULL : "no CR LF after a chunk";
    case AT_DATA_LF: chunks->state = AT_SIZE; return c == '\n' ? NULL : "no CR LF after a chunk";
    case AT_LINE:
    case AT_NAME:
    case AT_VALUE:
    case AT_VALUE_LF:
    case AT_LAST_LF: return trailer_byte(chunks, c);
    default: return size_byte(chunks, c);
    }
}

int ls_chunks_next(ls_chunks *chunks, const char *bytes, size_t len, ls_chunk_run *out, const char **why)
{
    const uint32_t before = chunks->state >= AT_LINE ? chunks->line_bytes : 0;
    size_t at = 0;
    while (at < len && chunks->state != AT_END) {
        const char *wrong;
        if (chunks->state == AT_DATA) {
            size_t run = len - at < chunks->left ? len - at : (size_t)chunks->left;
            chunks->left -= run;
            if (chunks->left == 0) chunks->state = AT_DATA_CR;
            *out = (ls_chunk_run){.from = at, .len = run, .used = at + run};
            return LS_OK;
        }
        wrong = framing_byte(chunks, bytes[at++]);
        if (wrong != NULL) {
            if (why != NULL) *why = wrong;
            return LS_EPROTO;
        }
    }
    *out = (ls_chunk_run){.used = at, .end = chunks->state == AT_END};
    if (chunks->state >= AT_LINE) out->trailers = chunks->line_bytes - before;
    return LS_OK;
}
