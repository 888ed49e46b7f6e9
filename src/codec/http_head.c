/* http_head.c - see http_head.h. */
#include "codec/http_head.h"

#include "codec/http_text.h"

bool ls_http_head_upgrades_to(const ls_http_head *head, const char *bytes, const char *protocol, size_t len)
{
    for (uint32_t i = 0; i < head->field_count; i++) {
        const ls_http_field *field = &head->fields[i];
        const char *at = bytes + field->value.at, *const end = at + field->value.len, *from, *to;
        if (!ls_text_same(bytes + field->name.at, field->name.len, "upgrade", 7)) continue;
        while (ls_list_next(&at, end, &from, &to))
            if (to > from && ls_text_same(from, (size_t)(to - from), protocol, len)) return true;
    }
    return false;
}

const ls_http_field *ls_http_head_find(const ls_http_head *head, const char *bytes, const char *name, size_t len)
{
    for (uint32_t i = 0; i < head->field_count; i++) {
        const ls_http_field *field = &head->fields[i];
        if (field->name.len == len && ls_text_same(bytes + field->name.at, len, name, len)) return field;
    }
    return NULL;
}
