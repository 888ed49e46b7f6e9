/* dict_list.c - the lists of a dict: values in a ring, whose room doubles. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "script/store/dict_internal.h"

enum {
    ROOM_FIRST = 4,
    LIST_BYTES = sizeof(ls_dict_list) + 32 /* what the C library adds to two allocations, about */
};

static ls_dict_value *value_at(const ls_dict_list *list, size_t n)
{
    return &list->values[(list->head + n) & (list->room - 1)];
}

static size_t room_for(size_t room, size_t count)
{
    while (room < count) room = room == 0 ? ROOM_FIRST : room * 2;
    return room;
}

/* Move the values into a ring of `room` values. false: out of memory. */
static bool resize(ls_dict_list *list, size_t room)
{
    ls_dict_value *values = malloc(room * sizeof *values);
    if (values == NULL) return false;
    for (size_t n = 0; n < list->count; n++) values[n] = *value_at(list, n);
    free(list->values);
    list->values = values;
    list->room = room;
    list->head = 0;
    return true;
}

static void push_values(ls_dict_list *list, ls_dict_value *values, size_t count, bool head)
{
    for (size_t n = 0; n < count; n++) {
        if (head) list->head = (list->head - 1) & (list->room - 1);
        list->count++;
        *value_at(list, head ? 0 : list->count - 1) = values[n];
        values[n].type = LS_DICT_NIL;
    }
}

static int push_old(ls_dict_access *access, ls_dict_entry *entry, ls_dict_value *values, size_t count, bool head,
                    size_t value_bytes, size_t *more)
{
    ls_dict_list *list = entry->value.as.list;
    const size_t room = room_for(list->room, list->count + count);
    *more = value_bytes + (room - list->room) * sizeof *values;
    if (!ls_dict_reserve(access->dict, *more)) return LS_ELIMIT;
    if (room > list->room && !resize(list, room)) {
        ls_dict_release(access->dict, *more);
        return LS_ENOMEM;
    }
    push_values(list, values, count, head);
    list->bytes += *more;
    ls_dict_touch(access, entry);
    return LS_OK;
}

static int push_new(ls_dict_access *access, ls_dict_value *values, size_t count, bool head, size_t value_bytes,
                    size_t *more)
{
    int err = LS_ENOMEM;
    const size_t room = room_for(0, count);
    *more = ls_dict_key_bytes(access->key_len) + LIST_BYTES + room * sizeof *values + value_bytes;
    if (!ls_dict_reserve(access->dict, *more)) return LS_ELIMIT;
    ls_dict_list *list = calloc(1, sizeof *list);
    if (list == NULL) goto fail_bytes;
    if (!resize(list, room)) goto fail_list;
    list->bytes = LIST_BYTES + room * sizeof *values + value_bytes;
    if (ls_dict_insert(access, (ls_dict_value){.type = LS_DICT_LIST, .as.list = list}, 0) == NULL) goto fail_list;
    push_values(list, values, count, head);
    return LS_OK;

fail_list:
    free(list->values);
    free(list);
fail_bytes:
    ls_dict_release(access->dict, *more);
    return err;
}

int ls_dict_push(ls_dict *dict, const ls_dict_key *key, ls_dict_value *values, size_t count, bool head, size_t *len)
{
    int err;
    size_t more = 0, value_bytes = 0, len_now = 0;
    for (size_t n = 0; n < count; n++) value_bytes += ls_dict_value_bytes(&values[n]);
    do {
        ls_dict_access access;
        ls_dict_enter(&access, dict, key);
        ls_dict_sweep(&access);
        ls_dict_entry *entry = ls_dict_find(&access);
        if (entry != NULL && entry->value.type != LS_DICT_LIST) {
            err = LS_EINVAL;
        } else if (entry != NULL) {
            err = push_old(&access, entry, values, count, head, value_bytes, &more);
            len_now = entry->value.as.list->count;
        } else {
            err = push_new(&access, values, count, head, value_bytes, &more);
            len_now = count;
        }
        const size_t all = entry != NULL && err == LS_ELIMIT
                               ? more + ls_dict_key_bytes(access.key_len) + entry->value.as.list->bytes
                               : more;
        ls_dict_leave(&access);
        if (err == LS_ELIMIT && all > atomic_load(&dict->bytes_max)) err = LS_EMSGSIZE;
    } while (err == LS_ELIMIT && ls_dict_make_room(dict, more));
    for (size_t n = 0; n < count; n++) ls_dict_value_drop(&values[n]);
    if (err == LS_OK) *len = len_now;
    return err;
}

/* The list of the key: LS_OK with *entry NULL for a key without an entry; LS_EINVAL for another value. */
static int find_list(ls_dict_access *access, ls_dict_entry **entry)
{
    *entry = ls_dict_find(access);
    return *entry != NULL && (*entry)->value.type != LS_DICT_LIST ? LS_EINVAL : LS_OK;
}

int ls_dict_pop(ls_dict *dict, const ls_dict_key *key, bool head, ls_dict_value *out)
{
    ls_dict_access access;
    ls_dict_entry *entry;
    ls_dict_enter(&access, dict, key);
    int err = find_list(&access, &entry);
    if (err == LS_OK && entry == NULL) err = LS_ENOENT;
    if (err == LS_OK) {
        ls_dict_list *list = entry->value.as.list;
        *out = *value_at(list, head ? 0 : list->count - 1);
        if (head) list->head = (list->head + 1) & (list->room - 1);
        list->count--;
        list->bytes -= ls_dict_value_bytes(out);
        ls_dict_release(dict, ls_dict_value_bytes(out));
        if (list->count == 0)
            ls_dict_unlink(&access, entry);
        else
            ls_dict_touch(&access, entry);
    }
    ls_dict_leave(&access);
    return err;
}

int ls_dict_list_len(ls_dict *dict, const ls_dict_key *key, size_t *len)
{
    ls_dict_access access;
    ls_dict_entry *entry;
    ls_dict_enter(&access, dict, key);
    const int err = find_list(&access, &entry);
    if (err == LS_OK) *len = entry != NULL ? entry->value.as.list->count : 0;
    ls_dict_leave(&access);
    return err;
}

/* Clip a range of positions, as string.sub does, to 0 <= *from <= *to <= count. */
static void clip(int64_t first, int64_t last, size_t count, size_t *from, size_t *to)
{
    const int64_t length = (int64_t)count;
    if (first < 0) first = first < -length ? 1 : length + first + 1;
    if (first == 0) first = 1;
    if (last < 0) last = last < -length ? 0 : length + last + 1;
    if (last > length) last = length;
    *from = first > last ? 0 : (size_t)first - 1;
    *to = first > last ? 0 : (size_t)last;
}

int ls_dict_range(ls_dict *dict, const ls_dict_key *key, int64_t first, int64_t last, ls_dict_value **values,
                  size_t *count)
{
    ls_dict_access access;
    ls_dict_entry *entry;
    ls_dict_value *found = NULL;
    size_t from = 0, to = 0;
    ls_dict_enter(&access, dict, key);
    int err = find_list(&access, &entry);
    if (err == LS_OK && entry != NULL) {
        const ls_dict_list *list = entry->value.as.list;
        clip(first, last, list->count, &from, &to);
        if (to > from) {
            found = malloc((to - from) * sizeof *found);
            if (found == NULL) err = LS_ENOMEM;
        }
        for (size_t n = from; err == LS_OK && n < to; n++) {
            found[n - from] = *value_at(list, n);
            if (found[n - from].type == LS_DICT_VALUE) (void)ls_value_hold(found[n - from].as.value);
        }
    }
    ls_dict_leave(&access);
    if (err != LS_OK) return err;
    *values = found;
    *count = to - from;
    return LS_OK;
}

/* ---- values as bytes ----------------------------------------------------------------------------------------- */

static const char *bytes_of(const ls_dict_value *value, size_t *len)
{
    *len = sizeof value->as;
    return value->type == LS_DICT_VALUE ? ls_value_code(value->as.value, len) : (const char *)&value->as;
}

char *ls_dict_list_code(const ls_dict_list *list, size_t before, size_t *len)
{
    size_t bytes;
    *len = before;
    for (size_t n = 0; n < list->count; n++) {
        (void)bytes_of(value_at(list, n), &bytes);
        *len += 1 + sizeof bytes + bytes;
    }
    char *code = malloc(*len);
    if (code == NULL) return NULL;
    char *to = code + before;
    for (size_t n = 0; n < list->count; n++) {
        const char *from = bytes_of(value_at(list, n), &bytes);
        *to++ = (char)value_at(list, n)->type;
        to = (char *)memcpy(to, &bytes, sizeof bytes) + sizeof bytes;
        to = (char *)memcpy(to, from, bytes) + bytes;
    }
    return code;
}

int ls_dict_value_of_code(const char **code, size_t *len, ls_dict_value *out)
{
    size_t bytes;
    if (*len < 1 + sizeof bytes) return LS_EIO;
    ls_dict_value value = {.type = (uint8_t) * *code};
    memcpy(&bytes, *code + 1, sizeof bytes);
    const char *at = *code + 1 + sizeof bytes;
    *len -= 1 + sizeof bytes;
    if (bytes > *len || value.type == LS_DICT_NIL || value.type > LS_DICT_VALUE) return LS_EIO;
    if (value.type == LS_DICT_VALUE) {
        if ((value.as.value = ls_value_of_code(at, bytes)) == NULL) return LS_EIO;
    } else {
        if (bytes != sizeof value.as) return LS_EIO;
        memcpy(&value.as, at, bytes);
    }
    *code = at + bytes;
    *len -= bytes;
    *out = value;
    return LS_OK;
}

int ls_dict_push_code(ls_dict *dict, const ls_dict_key *key, const char *code, size_t len)
{
    int err = LS_OK;
    while (len > 0 && err == LS_OK) {
        ls_dict_value value;
        size_t count;
        err = ls_dict_value_of_code(&code, &len, &value);
        if (err == LS_OK) err = ls_dict_push(dict, key, &value, 1, false, &count);
    }
    return err;
}
