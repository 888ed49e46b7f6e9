/* fuzz_http1_reader.c - a whole response gives the same payload for every split, and every run is inside the bytes. One
 * exception: a head in pieces is parsed at each line end, so an error in an unfinished line is not found. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/http1/http1_reader.h"

enum { BYTES_MAX = 512, PAYLOAD_MAX = 1 << 16 };

typedef struct outcome {
    int result; /* 1: the body has ended; LS_OK: more is needed; LS_EPROTO */
    size_t used, len;
    bool answered; /* the head is complete */
    char payload[PAYLOAD_MAX];
} outcome;

/* Read the bytes in pieces of `step`, with what was not consumed in front. */
static void read_response(const uint8_t *data, size_t size, size_t step, enum ls_asked asked, outcome *out)
{
    ls_http1_reader reader;
    size_t have = 0;
    ls_http1_reader_init(&reader, asked);
    *out = (outcome){.result = LS_OK};
    do {
        have = have + step < size ? have + step : size;
        const size_t rest = have - out->used;
        char *copy = fuzz_copy_exact(data + out->used, rest);
        size_t at = 0, skip = 0;
        const char *why = NULL;
        if (!out->answered) {
            const int head = ls_http1_read_head(&reader, copy, rest, BYTES_MAX, &skip, &why);
            FUZZ_HOLDS(skip <= rest && head <= (int)(rest - skip) && (head < 0) == (why != NULL));
            at = skip + (head > 0 ? (size_t)head : 0);
            out->answered = head > 0;
            FUZZ_HOLDS(!out->answered || reader.head.status >= 200 || asked == LS_ASKED_UPGRADE);
            if (head < 0) out->result = head;
        }
        while (out->answered && out->result == LS_OK && (at < rest || reader.head.framing == LS_FRAMING_NONE)) {
            ls_chunk_run run;
            const int err = ls_http1_read_body(&reader, copy + at, rest - at, &run, &why);
            if (err < 0) {
                FUZZ_HOLDS(err == LS_EPROTO && why != NULL);
                out->result = err;
                break;
            }
            FUZZ_HOLDS(run.from + run.len <= run.used && run.used <= rest - at && (run.used > 0 || run.end));
            FUZZ_HOLDS(out->len + run.len <= PAYLOAD_MAX);
            memcpy(out->payload + out->len, copy + at + run.from, run.len);
            out->len += run.len;
            at += run.used;
            if (run.end) out->result = 1;
        }
        out->used += at;
        free(copy);
    } while (have < size && out->result == LS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static outcome whole, split;
    if (size == 0 || size > PAYLOAD_MAX) return 0;
    const enum ls_asked asked = data[size - 1] == 'H'   ? LS_ASKED_HEAD
                                : data[size - 1] == 'U' ? LS_ASKED_UPGRADE
                                                        : LS_ASKED_BODY;
    read_response(data, size, size, asked, &whole);
    for (size_t step = 1; step < size; step += 1 + size / 16) {
        read_response(data, size, step, asked, &split);
        FUZZ_HOLDS(split.result == whole.result ||
                   (split.result == LS_OK && whole.result < 0 && !split.answered && !whole.answered));
        FUZZ_HOLDS(split.len == whole.len);
        FUZZ_HOLDS(memcmp(split.payload, whole.payload, whole.len) == 0);
        FUZZ_HOLDS(whole.result < 0 || split.used == whole.used);
    }
    return 0;
}
