/* dict_handover.c - all dicts that are only in memory as a stream, for the process that replaces this one
 * (server/upgrade.h): `form`, then for each dict a record with its name, and one for each entry, with its key and the
 * code of its values. Both processes are on the same machine, so numbers are as in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "script/store/dict_internal.h"

/* To be changed with the records, the code of a value (marshal.c) and enum ls_dict_type: another form is not read. */
static const char form[16] = "dicts 2";

enum record_type { RECORD_END = 1, RECORD_DICT, RECORD_ENTRY, RECORD_LIST };

typedef struct record {
    uint64_t type;
    uint64_t text_len; /* of the name or the key, which follows */
    uint64_t code_len; /* of the values, which follow the key: as of ls_dict_list_code */
    int64_t integer;   /* the key, if `flag` */
    uint64_t limit;    /* bytes_max, ttl_ms */
    uint64_t flag;     /* evict; the key is an integer */
} record;

/* ---- write: ferror(3) has the result ------------------------------------------------------------------------- */

static void put_record(FILE *out, const record *r, const char *text, const char *code)
{
    (void)fwrite(r, sizeof *r, 1, out);
    (void)fwrite(text, 1, r->text_len, out);
    (void)fwrite(code, 1, r->code_len, out);
}

static int put_entry(FILE *out, ls_dict *dict, const ls_dict_key *key, ls_dict_value *value)
{
    record r = {.type = RECORD_ENTRY, .text_len = key->len, .integer = key->integer, .flag = key->bytes == NULL};
    ls_dict_list list = {.values = value, .count = 1, .room = SIZE_MAX / 2 + 1}; /* a ring that is not full */
    size_t len;
    if (!ls_dict_ttl(dict, key, &r.limit)) return LS_OK; /* it is over */
    if (value->type == LS_DICT_LIST) {
        const int err = ls_dict_range(dict, key, 1, -1, &list.values, &list.count);
        if (err < 0) return err == LS_EINVAL ? LS_OK : err; /* it was replaced */
        r.type = RECORD_LIST;
    }
    char *code = ls_dict_list_code(&list, 0, &len);
    r.code_len = len;
    if (code != NULL) put_record(out, &r, key->bytes != NULL ? key->bytes : "", code);
    free(code);
    for (size_t n = 0; r.type == RECORD_LIST && n < list.count; n++) ls_dict_value_drop(&list.values[n]);
    if (r.type == RECORD_LIST) free(list.values);
    return code != NULL ? LS_OK : LS_ENOMEM;
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
    put_record(w->out, &r, object->name, "");
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
    if (w.err == LS_OK) put_record(out, &end, "", "");
    return w.err < 0 ? w.err : fflush(out) != 0 || ferror(out) ? LS_ENOMEM : LS_OK;
}

/* ---- read ---------------------------------------------------------------------------------------------------- */

/* The next record, and the text and the code after it, which the caller frees. LS_EINVAL: the stream ends before. */
static int get_record(FILE *in, record *r, char **text)
{
    *text = NULL;
    if (fread(r, sizeof *r, 1, in) != 1 || r->text_len >= SIZE_MAX || r->code_len >= SIZE_MAX - r->text_len)
        return LS_EINVAL;
    const size_t len = (size_t)(r->text_len + r->code_len);
    if ((*text = malloc(len + 1)) == NULL) return LS_ENOMEM;
    (*text)[len] = '\0';
    if (fread(*text, 1, len, in) == len) return LS_OK;
    free(*text);
    *text = NULL;
    return LS_EINVAL;
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

/* What the new site has written stays. */
static int get_entry(const record *r, const char *text, ls_dict *dict, unsigned *entries)
{
    const ls_dict_key key = {.bytes = r->flag ? NULL : text, .len = (size_t)r->text_len, .integer = r->integer};
    const char *code = text + r->text_len;
    size_t len = (size_t)r->code_len, before;
    ls_dict_value value;
    int err;
    if (r->type == RECORD_LIST) {
        if (ls_dict_list_len(dict, &key, &before) < 0 || before > 0) return LS_OK;
        err = ls_dict_push_code(dict, &key, code, len);
        if (err == LS_OK && r->limit != 0) (void)ls_dict_expire(dict, &key, r->limit);
    } else {
        err = ls_dict_value_of_code(&code, &len, &value);
        if (err == LS_OK) err = ls_dict_set(dict, &key, value, LS_DICT_ADD, r->limit, 0);
    }
    *entries += err == LS_OK;
    return err == LS_EIO ? LS_EINVAL : LS_OK; /* else it is full, or has the key */
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
        else if (err == LS_OK && r.type != RECORD_END && dict != NULL)
            err = get_entry(&r, text, dict, entries);
        free(text);
    } while (err == LS_OK && r.type != RECORD_END);
    ls_shared_next_generation(shared); /* a dict that the site defines later has the options of that definition */
    return err;
}
