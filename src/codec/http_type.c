/* http_type.c - media types by file name extension. The types of web pages come first: they are requested most. */
#include "codec/http_type.h"

#include <stddef.h>
#include <string.h>

#include "codec/http_text.h"

static const struct {
    const char *ending, *type;
} types[] = {
    {"html", "text/html; charset=utf-8"},
    {"css", "text/css; charset=utf-8"},
    {"js", "text/javascript; charset=utf-8"},
    {"png", "image/png"},
    {"jpg", "image/jpeg"},
    {"svg", "image/svg+xml"},
    {"webp", "image/webp"},
    {"woff2", "font/woff2"},
    {"json", "application/json"},
    {"txt", "text/plain; charset=utf-8"},
    {"htm", "text/html; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"ico", "image/vnd.microsoft.icon"},
    {"jpeg", "image/jpeg"},
    {"gif", "image/gif"},
    {"avif", "image/avif"},
    {"woff", "font/woff"},
    {"wasm", "application/wasm"},
    {"csv", "text/csv; charset=utf-8"},
    {"md", "text/markdown; charset=utf-8"},
    {"xml", "application/xml"},
    {"pdf", "application/pdf"},
    {"zip", "application/zip"},
    {"gz", "application/gzip"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"webm", "video/webm"},
};

const char *ls_http_type_of_extension(const char *extension)
{
    const size_t len = strlen(extension);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (ls_text_same(extension, len, types[i].ending, strlen(types[i].ending))) return types[i].type;
    return NULL;
}

const char *ls_http_type_of(const char *path)
{
    const char *dot = NULL;
    for (const char *at = path; *at != '\0'; at++) {
        if (*at == '.') dot = at;
        if (*at == '/' || *at == '\\') dot = NULL;
    }
    const char *type = dot != NULL ? ls_http_type_of_extension(dot + 1) : NULL;
    return type != NULL ? type : "application/octet-stream";
}
