/* dict_handover.c - all dicts that are only in memory as a stream, for the process that replaces this one
 * (server/upgrade.h): `form`, then for each dict a record with its name, and one for each entry, with its key and its
 * values. Both processes are on the same machine, so numbers are as in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "script/store/dict.h"

/* To be changed with the records, the code of a value (marshal.c) and enum ls_dict_type: another form is not read. */
static const char form[16] = "dicts 1";

enum record_type { RECORD_END = 1, RECORD_DICT, RECORD_ENTRY, RECORD_LIST };

typedef struct record {
    uint64_t type;
    uint64_t text_len; /* of the name or the key, which follows */
    int64_t integer;   /* the key, if `of_integer` */
    uint64_t limit;    /* bytes_max, ttl_ms */
    uint64_t flag;     /* evict; the key is an integer */
    uint64_t count;    /* of the values that follow */
} record;

/* ---- write: ferror(3) has the result ------------------------------------------------------------------------- */

static void put_record(FILE *out, const record *r, const char *text)
{
    (void)fwrite(r, sizeof *r, 1, out);
    (void)fwrite(text, 1, r->text_len, out);
}

static void put_value(FILE *out, const ls_dict_value *value)
{
    record r = {.type = value->type};
    const char *code = "";
    size_t len = 0;
    if (value->type == LS_DICT_VALUE)
        code = ls_value_code(value->as.value, &len);
    else if (value->type == LS_DICT_BOOLEAN)
        r.integer = value->as.boolean;
    else
        memcpy(&r.integer, &value->as, sizeof r.integer); /* an integer or a float */
    r.text_len = len;
    put_record(out, &r, code);
}

static int put_entry(FILE *out, ls_dict *dict, const ls_dict_key *key, const ls_dict_value *value)
{
    record r = {
        .type = RECORD_ENTRY, .text_len = key->len, .integer = key->integer, .flag = key->bytes == NULL, .count = 1};
    ls_dict_value *values = NULL;
    size_t count = 0;
    if (!ls_dict_ttl(dict, key, &r.limit)) return LS_OK; /* it is over */
    if (value->type == LS_DICT_LIST) {
        const int err = ls_dict_range(dict, key, 1, -1, &values, &count);
        if (err < 0) return err == LS_EINVAL ? LS_OK : err; /* it was replaced */
        r.type = RECORD_LIST;
        r.count = count;
    }
    put_record(out, &r, key->bytes != NULL ? key->bytes : "");
    for (size_t n = 0; n < r.count; n++) put_value(out, values != NULL ? &values[n] : value);
    for (size_t n = 0; n < count; n++) ls_dict_value_drop(&values[n]);
    free(values);
    return LS_OK;
}

typedef struct writing {
    FILE *out;
    int err;
} writing;

static void put_dict(ls_shared_object *object, void *to)
{
    writing *w = to;
    ls_dict *dict = (ls_dict *)(void *)object;
    const ls_dict_options options = ls_dict_options_get(dict);
    const record r = {
        .type = RECORD_DICT, .text_len = strlen(object->name), .limit = options.bytes_max, .flag = options.evict};
    ls_dict_items items = {0};
    uint64_t cursor = 0;
    if (options.file != NULL || strncmp(object->name, LS_DICT_OF_PROCESS, sizeof LS_DICT_OF_PROCESS - 1) == 0) return;
    put_record(w->out, &r, object->name);
    do {
        if (w->err == LS_OK) w->err = ls_dict_scan(dict, &cursor, true, &items);
        for (size_t n = 0; n < items.count && w->err == LS_OK; n++) {
            const ls_dict_key key = ls_dict_item_key(&items, n);
            w->err = put_entry(w->out, dict, &key, &items.items[n].value);
        }
    } while (cursor != 0 && w->err == LS_OK);
    ls_dict_items_drop(&items);
}

int ls_dicts_write(ls_shared *shared, FILE *out)
{
    const record end = {.type = RECORD_END};
    writing w = {.out = out};
    (void)fwrite(form, sizeof form, 1, out);
    ls_shared_each(shared, &ls_dict_kind, put_dict, &w);
    if (w.err == LS_OK) put_record(out, &end, "");
    return w.err < 0 ? w.err : fflush(out) != 0 || ferror(out) ? LS_ENOMEM : LS_OK;
}

/* ---- read ---------------------------------------------------------------------------------------------------- */

/* The next record, and the text after it, which the caller frees. LS_EINVAL: the stream ends before. */
static int get_record(FILE *in, record *r, char **text)
{
    *text = NULL;
    if (fread(r, sizeof *r, 1, in) != 1 || r->text_len >= SIZE_MAX) return LS_EINVAL;
    if ((*text = malloc((size_t)r->text_len + 1)) == NULL) return LS_ENOMEM;
    (*text)[r->text_len] = '\0';
    if (fread(*text, 1, (size_t)r->text_len, in) == r->text_len) return LS_OK;
    free(*text);
    *text = NULL;
    return LS_EINVAL;
}

static int get_value(FILE *in, ls_dict_value *out)
{
    record r;
    char *code;
    int err = get_record(in, &r, &code);
    if (err < 0) return err;
    *out = (ls_dict_value){.type = (uint8_t)r.type};
    if (r.type == LS_DICT_VALUE)
        err = (out->as.value = ls_value_of_code(code, (size_t)r.text_len)) != NULL ? LS_OK : LS_EINVAL;
    else if (r.type == LS_DICT_BOOLEAN)
        out->as.boolean = r.integer != 0;
    else if (r.type == LS_DICT_INTEGER || r.type == LS_DICT_FLOAT)
        memcpy(&out->as, &r.integer, sizeof r.integer);
    else
        err = LS_EINVAL;
    free(code);
    return err;
}

/* NULL: the site keeps this dict in a file, or it cannot be made. */
static ls_dict *get_dict(ls_shared *shared, const record *r, const char *name)
{
    const ls_dict_options options = {.bytes_max = r->limit, .evict = r->flag};
    ls_shared_object *object = NULL;
    char before[LS_SHARED_WHERE_BYTES];
    if (ls_shared_get(shared, &ls_dict_kind, name, "", &options, &object, before) == LS_EEXIST)
        (void)ls_shared_get(shared, &ls_dict_kind, name, "", NULL, &object, before);
    ls_dict *dict = (ls_dict *)(void *)object;
    return dict == NULL || ls_dict_store_of(dict) != NULL ? NULL : dict;
}

/* Without a dict the values are only read. What the new site has written stays. */
static int get_entry(FILE *in, const record *r, const char *text, ls_dict *dict, unsigned *entries)
{
    const ls_dict_key key = {.bytes = r->flag ? NULL : text, .len = (size_t)r->text_len, .integer = r->integer};
    const bool is_list = r->type == RECORD_LIST;
    bool takes = dict != NULL;
    size_t len = 0;
    if (takes && is_list) takes = ls_dict_list_len(dict, &key, &len) == LS_OK && len == 0;
    for (uint64_t n = 0; n < r->count; n++) {
        ls_dict_value value;
        int err = get_value(in, &value);
        if (err < 0) return err;
        if (!takes)
            ls_dict_value_drop(&value);
        else if (is_list)
            takes = ls_dict_push(dict, &key, &value, 1, false, &len) == LS_OK; /* else it is full */
        else
            takes = ls_dict_set(dict, &key, value, LS_DICT_ADD, r->limit, 0) == LS_OK;
    }
    if (takes && is_list && r->limit != 0) (void)ls_dict_expire(dict, &key, r->limit);
    *entries += takes;
    return LS_OK;
}

int ls_dicts_read(ls_shared *shared, FILE *in, unsigned *entries)
{
    char head[sizeof form], *text;
    ls_dict *dict = NULL;
    record r = {0};
    int err;
    *entries = 0;
    if (fread(head, sizeof head, 1, in) != 1 || memcmp(head, form, sizeof form) != 0) return LS_ENOTSUP;
    do {
        err = get_record(in, &r, &text);
        if (err == LS_OK && r.type == RECORD_DICT)
            dict = get_dict(shared, &r, text);
        else if (err == LS_OK && r.type != RECORD_END)
            err = get_entry(in, &r, text, dict, entries);
        free(text);
    } while (err == LS_OK && r.type != RECORD_END);
    ls_shared_next_generation(shared); /* a dict that the site defines later has the options of that definition */
    return err;
}
