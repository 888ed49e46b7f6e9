/* database_value.c - the values of database.h: of parameters and of rows. */
#include <stdlib.h>
#include <string.h>

#include "script/database/database.h"

char *ls_db_bytes_add(ls_db_bytes *bytes, size_t len)
{
    if (len > bytes->room - bytes->len) {
        size_t room = bytes->room < 256 ? 256 : bytes->room * 2;
        while (room - bytes->len < len) room *= 2;
        char *data = realloc(bytes->data, room);
        if (data == NULL) return NULL;
        bytes->data = data;
        bytes->room = room;
    }
    char *at = bytes->data + bytes->len;
    bytes->len += len;
    return at;
}

bool ls_db_bytes_put(ls_db_bytes *bytes, enum ls_db_type type, const void *data, size_t len)
{
    const size_t head = type >= LS_DB_TEXT ? 1 + sizeof len : 1;
    char *at = ls_db_bytes_add(bytes, head + len);
    if (at == NULL) return false;
    *at = (char)type;
    if (type >= LS_DB_TEXT) memcpy(at + 1, &len, sizeof len);
    if (data != NULL && len > 0) memcpy(at + head, data, len);
    return true;
}

enum ls_db_type ls_db_bytes_take(const char **at, const char **data, size_t *len)
{
    const enum ls_db_type type = (enum ls_db_type) * *at;
    *at += 1;
    *len = type == LS_DB_NULL ? 0 : sizeof(int64_t);
    if (type >= LS_DB_TEXT) {
        memcpy(len, *at, sizeof *len);
        *at += sizeof *len;
    }
    *data = *at;
    *at += *len;
    return type;
}
