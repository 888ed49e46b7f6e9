/* plan.c - the bytes of an HTTP request, and the shares of the threads. See plan.h. */
#include "stress/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http_text.h"

#define REQUEST_BYTES_MAX ((size_t)1 << 30)

static bool has_header(const ls_stress_plan *plan, const char *name)
{
    const size_t len = strlen(name);
    for (unsigned i = 0; i < plan->header_count; i++)
        if (ls_text_same(plan->headers[i], strcspn(plan->headers[i], ":"), name, len)) return true;
    return false;
}

/* Append to bytes[*at..room); with bytes == NULL only count. */
static void append(char *bytes, size_t room, size_t *at, const char *text, size_t len)
{
    if (bytes != NULL && *at + len <= room) memcpy(bytes + *at, text, len);
    *at += len;
}

static void put(char *bytes, size_t room, size_t *at, const char *text)
{
    append(bytes, room, at, text, strlen(text));
}

static size_t write_request(const ls_stress_plan *plan, const char *method, const char *path, const char *body,
                            size_t body_len, char *bytes, size_t room)
{
    char text[LS_STRESS_TARGET_HOST_BYTES + 64];
    size_t at = 0;
    put(bytes, room, &at, method);
    put(bytes, room, &at, " ");
    put(bytes, room, &at, path);
    put(bytes, room, &at, " HTTP/1.1\r\n");
    if (!has_header(plan, "host")) {
        put(bytes, room, &at, "Host: ");
        put(bytes, room, &at, ls_stress_target_authority(&plan->target, text, sizeof text));
        put(bytes, room, &at, "\r\n");
    }
    for (unsigned i = 0; i < plan->header_count; i++) {
        put(bytes, room, &at, plan->headers[i]);
        put(bytes, room, &at, "\r\n");
    }
    if (!plan->config.keepalive && !has_header(plan, "connection")) put(bytes, room, &at, "Connection: close\r\n");
    if (body != NULL && !has_header(plan, "content-length")) {
        (void)snprintf(text, sizeof text, "Content-Length: %zu\r\n", body_len);
        put(bytes, room, &at, text);
    }
    put(bytes, room, &at, "\r\n");
    if (body != NULL) append(bytes, room, &at, body, body_len);
    return at;
}

char *ls_stress_plan_request(const ls_stress_plan *plan, const char *method, const char *path, const char *body,
                             size_t body_len, unsigned copies, size_t *len)
{
    *len = write_request(plan, method, path, body, body_len, NULL, 0);
    if (*len > REQUEST_BYTES_MAX / copies) return NULL;
    char *bytes = malloc(*len * copies);
    if (bytes == NULL) return NULL;
    (void)write_request(plan, method, path, body, body_len, bytes, *len);
    for (unsigned i = 1; i < copies; i++) memcpy(bytes + i * *len, bytes, *len);
    return bytes;
}

uint32_t ls_stress_plan_share(uint32_t count, unsigned threads, unsigned index)
{
    return count / threads + (index < count % threads);
}

uint32_t ls_stress_plan_share_before(uint32_t count, unsigned threads, unsigned index)
{
    const uint32_t rest = count % threads;
    return count / threads * index + (index < rest ? index : rest);
}
