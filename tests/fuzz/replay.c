/* replay.c - runs a fuzz target over its corpus, so that every build tests the inputs found by fuzzing.
 *
 * A corpus is one text file; add.py adds to it. The line "= <name>" begins an input. Its bytes are those of the lines that
 * follow, with these escapes:
 *   \r \t \\               the character
 *   \<00ff>                bytes in hexadecimal
 *   \(<bytes>\)<count>;    the bytes, count times; not nested
 *   \ before a line break  the line break is not part of the input */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { PACK_BYTES_MAX = 1 << 20, INPUT_BYTES_MAX = 1 << 20 };

static char pack[PACK_BYTES_MAX];
static uint8_t input[INPUT_BYTES_MAX];
static size_t input_len;

static bool append(const void *bytes, size_t len)
{
    if (len > INPUT_BYTES_MAX - input_len) return false;
    memcpy(input + input_len, bytes, len);
    input_len += len;
    return true;
}

/* Append what "\<" begins; *at is the first digit and becomes the end. */
static bool append_hex(const char **at)
{
    for (; **at != '>'; *at += 2) {
        char *end;
        const char digits[3] = {(*at)[0], (*at)[0] != '\0' ? (*at)[1] : '\0', '\0'};
        const uint8_t byte = (uint8_t)strtoul(digits, &end, 16);
        if (end != digits + 2 || !append(&byte, 1)) return false;
    }
    ++*at;
    return true;
}

/* Append the bytes from `from` on again, as often as the number at *at says. */
static bool repeat(size_t from, const char **at)
{
    char *end;
    const size_t len = input_len - from;
    const unsigned long count = strtoul(*at, &end, 10);
    for (unsigned long i = 1; i < count; i++)
        if (!append(input + from, len)) return false;
    *at = end + 1;
    return count > 0 && *end == ';';
}

/* Append the bytes of an escape; *at is behind its backslash and becomes its end. *group is where a repetition began. */
static bool append_escape(const char **at, size_t *group)
{
    switch (*(*at)++) {
    case '\n': return true;
    case '\\': return append("\\", 1);
    case 'r': return append("\r", 1);
    case 't': return append("\t", 1);
    case '<': return append_hex(at);
    case '(': *group = input_len; return true;
    case ')': return repeat(*group, at);
    default: return false;
    }
}

/* Set `input` to the bytes of the lines at *at, which becomes the line of the next input, or the end. */
static bool read_input(const char **at)
{
    size_t group = 0;
    input_len = 0;
    while (**at != '\0' && (*at)[0] != '=') {
        const char *end = strchr(*at, '\n');
        if (end == NULL) return false;
        while (*at <= end) {
            const char c = *(*at)++;
            if (c == '\\' ? !append_escape(at, &group) : !append(&c, 1)) return false;
        }
    }
    return true;
}

static bool read_pack(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    const size_t len = fread(pack, 1, sizeof pack - 1, file);
    (void)fclose(file);
    return len > 0 && len < sizeof pack - 1 && pack[len - 1] == '\n' && memchr(pack, '\0', len) == NULL;
}

int main(int argc, char **argv)
{
    int count = 0;
    if (argc != 2 || !read_pack(argv[1])) {
        fprintf(stderr, "usage: %s PACK\n", argv[0]);
        return 2;
    }
    for (const char *at = pack; *at != '\0'; count++) {
        const char *name = at;
        const char *end = strchr(at, '\n');
        at = end + 1;
        if (name[0] != '=' || !read_input(&at)) {
            fprintf(stderr, "%s: input %d is malformed\n", argv[1], count + 1);
            return 1;
        }
        uint8_t *exact = malloc(input_len > 0 ? input_len : 1); /* a sanitizer sees a read one byte past its end */
        if (exact == NULL) return 1;
        memcpy(exact, input, input_len);
        (void)LLVMFuzzerTestOneInput(exact, input_len);
        free(exact);
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1; /* an empty corpus is a failure */
}
