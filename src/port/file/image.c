/* image.c - see image.h. Formats: APPNOTE.TXT of PKWARE, 4.3.7, 4.3.12 and 4.3.16. */
#include "port/file/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "port/file/file_internal.h"

enum { HEAD_BYTES = 46, END_BYTES = 22 };

/* volatile: its bytes are others when the program runs. */
static const volatile unsigned char slot[LS_IMAGE_SLOT_BYTES] = "luaserve: the packed files are:";

static struct image {
    ls_fd fd;
    size_t count, root_len;
    ls_image_file *files; /* in the order of names */
    char *directory;      /* of the archive: the names are in it */
    char *site;           /* the first root_len bytes are the directory of the program, without a slash at the end */
    const char *overlay;
} image;

const char *ls_image_mark(char out[LS_IMAGE_MARK_BYTES])
{
    for (size_t i = 0; i < LS_IMAGE_MARK_BYTES; i++) out[i] = (char)slot[i];
    return out;
}

static uint64_t number(const volatile unsigned char *bytes, unsigned len)
{
    uint64_t value = 0;
    while (len > 0) value = value << 8 | bytes[--len];
    return value;
}

/* Four lanes, so that the multiplications overlap. Each step is a bijection of the lane and of the word. */
uint64_t ls_image_sum(uint64_t sum, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    while (len > 0) {
        size_t part = len < LS_IMAGE_SUM_PART ? len : LS_IMAGE_SUM_PART;
        uint64_t lanes[4] = {sum + 1, sum + 2, sum + 3, sum + 4 + part}, word;
        len -= part;
        for (; part >= 32; part -= 32)
            for (unsigned i = 0; i < 4; i++, at += 8) {
                memcpy(&word, at, 8);
                lanes[i] = (lanes[i] ^ word) * UINT64_C(0x9fb21c651e98df25);
                lanes[i] ^= lanes[i] >> 32;
            }
        for (; part > 0; part--) lanes[part % 4] = (lanes[part % 4] ^ *at++) * UINT64_C(0x100000001b3);
        sum = 0;
        for (unsigned i = 0; i < 4; i++) {
            sum = (sum ^ lanes[i] ^ lanes[i] >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
            sum ^= sum >> 32;
        }
    }
    return sum;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* Add the checksum of the bytes [from, to) of the file. */
static int add_sum(uint64_t from, uint64_t to, char *part, uint64_t *sum)
{
    while (from < to) {
        const size_t len = to - from < LS_IMAGE_SUM_PART ? (size_t)(to - from) : LS_IMAGE_SUM_PART;
        const int64_t n = ls_file_read(image.fd, part, len, from);
        if (n < 0) return (int)n;
        if ((size_t)n < len) return LS_EPROTO;
        *sum = ls_image_sum(*sum, part, len);
        from += len;
    }
    return LS_OK;
}

static int check(uint64_t place, uint64_t at, uint64_t bytes, const char **why)
{
    ls_file_info info;
    uint64_t sum = 0;
    int err = ls_file_stat_open(image.fd, &info);
    if (err < 0) return err;
    *why = "the packed program is truncated, or something was appended to it: copy it again";
    if (info.bytes != bytes || at >= bytes || bytes - at > SIZE_MAX / 2) return LS_EPROTO;
    *why = "the packed program is damaged: its bytes are not those that were packed; copy it again";
    if (place + LS_IMAGE_SLOT_BYTES > at) return LS_EPROTO;
    char *part = malloc(LS_IMAGE_SUM_PART);
    if (part == NULL) return LS_ENOMEM;
    if ((err = add_sum(0, place, part, &sum)) == LS_OK) err = add_sum(place + LS_IMAGE_SLOT_BYTES, bytes, part, &sum);
    free(part);
    return err == LS_OK && sum != number(slot + 56, 8) ? LS_EPROTO : err;
}

/* The entries of the directory, `len` bytes, which ends with the name of the site as its comment. */
static int read_directory(size_t len, const char *program)
{
    const unsigned char *at = (const unsigned char *)image.directory, *const end = at + len;
    const char *name = strrchr(program, '/');
    image.root_len = name != NULL ? (size_t)(name - program) : 0;
    image.files = calloc(len / HEAD_BYTES + 1, sizeof *image.files);
    if (image.files == NULL) return LS_ENOMEM;
    for (; end - at >= HEAD_BYTES && number(at, 4) == 0x02014b50; image.count++) {
        const size_t name_len = number(at + 28, 2), extra_len = number(at + 30, 2);
        const unsigned char *extra = at + HEAD_BYTES + name_len;
        if ((size_t)(end - at) < HEAD_BYTES + name_len + extra_len || extra_len < 4 + LS_IMAGE_EXTRA_BYTES ||
            number(extra, 2) != LS_IMAGE_EXTRA_ID)
            return LS_EPROTO;
        image.files[image.count] = (ls_image_file){.name = (const char *)at + HEAD_BYTES,
                                                   .name_len = name_len,
                                                   .bytes = number(at + 24, 4),
                                                   .tag = number(extra + 4, 8),
                                                   .at = number(extra + 12, 8),
                                                   .flags = extra[20]};
        at = extra + extra_len;
    }
    if (end - at < END_BYTES || number(at, 4) != 0x06054b50 || image.count == 0) return LS_EPROTO;
    const size_t site_len = (size_t)(end - at) - END_BYTES;
    image.site = malloc(image.root_len + site_len + 2);
    if (image.site == NULL) return LS_ENOMEM;
    (void)snprintf(image.site, image.root_len + site_len + 2, "%.*s/%.*s", (int)image.root_len, program, (int)site_len,
                   (const char *)at + END_BYTES);
    return LS_OK;
}

int ls_image_open(const char *program, const char **why)
{
    const uint64_t place = number(slot + 32, 8), at = number(slot + 40, 8), bytes = number(slot + 48, 8);
    if (bytes == 0) return 0;
    int err = ls_file_open(program, LS_FILE_READ, &image.fd);
    *why = ls_err_text(err);
    if (err < 0) return err;
    if ((err = check(place, at, bytes, why)) < 0) goto fail;
    image.directory = malloc((size_t)(bytes - at));
    err = image.directory != NULL ? LS_OK : LS_ENOMEM;
    if (err == LS_OK && ls_file_read(image.fd, image.directory, (size_t)(bytes - at), at) < 0) err = LS_EIO;
    if (err == LS_OK) err = read_directory((size_t)(bytes - at), program);
    if (err == LS_OK) return 1;
    free(image.directory);
    free(image.files);

fail:
    ls_file_close(image.fd);
    image = (struct image){0};
    if (err != LS_EPROTO) *why = ls_err_text(err);
    return err;
}

const char *ls_image_site(void)
{
    return image.site;
}

int ls_image_overlay(const char *folder)
{
    ls_file_info info;
    const int err = ls_file_stat_on_disk(folder, &info);
    if (err < 0) return err;
    if (info.type != LS_FILE_DIRECTORY) return LS_ENOTDIR;
    image.overlay = folder;
    return LS_OK;
}

ls_fd ls_image_fd(void)
{
    return image.fd;
}

const char *ls_image_overlay_folder(void)
{
    return image.overlay;
}

const ls_image_file *ls_image_file_at(size_t n)
{
    return n < image.count ? &image.files[n] : NULL;
}

/* ---- finding ------------------------------------------------------------------------------------------------------ */

/* Write the path below the directory of the program without "", "." and "..". Its length; -1: it is not below. */
static long name_of(const char *path, char out[LS_PATH_BYTES])
{
    size_t len = 0;
    if (image.count == 0 || strncmp(path, image.site, image.root_len) != 0) return -1;
    path += image.root_len;
    if (*path != '/' && *path != '\0') return -1;
    while (*path != '\0') {
        while (*path == '/') path++;
        const size_t part = strcspn(path, "/");
        if (part == 2 && memcmp(path, "..", 2) == 0) {
            if (len == 0) return -1;
            while (len > 0 && out[--len] != '/') continue;
        } else if (part > 1 || (part == 1 && *path != '.')) {
            if (len + part + 2 > LS_PATH_BYTES) return -1;
            if (len > 0) out[len++] = '/';
            memcpy(out + len, path, part);
            len += part;
        }
        path += part;
    }
    out[len] = '\0';
    return (long)len;
}

/* The number of files whose names are less than the name. */
static size_t lower(const char *name, size_t len)
{
    size_t from = 0, to = image.count;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        const ls_image_file *file = &image.files[middle];
        const int order = memcmp(file->name, name, file->name_len < len ? file->name_len : len);
        if (order < 0 || (order == 0 && file->name_len < len))
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool begins(const ls_image_file *file, const char *name, size_t len)
{
    return file != NULL && file->name_len >= len && memcmp(file->name, name, len) == 0;
}

void ls_image_find(const char *path, ls_image_found *out)
{
    char name[LS_PATH_BYTES + 1];
    ls_file_info info;
    out->place = LS_IMAGE_DISK; /* member by member: `room` is large */
    out->path = path;
    out->file = NULL;
    const long len = name_of(path, name);
    if (len < 0) return;
    if (image.overlay != NULL) {
        (void)snprintf(out->room, sizeof out->room, "%.*s/%s", LS_PATH_BYTES - 1, image.overlay, name);
        if (ls_file_stat_on_disk(out->room, &info) == LS_OK) {
            out->path = out->room;
            return;
        }
    }
    const ls_image_file *file = ls_image_file_at(lower(name, (size_t)len));
    if (begins(file, name, (size_t)len) && file->name_len == (size_t)len) {
        out->place = LS_IMAGE_FILE;
        out->file = file;
        return;
    }
    name[len] = '/';
    if (len == 0 || begins(ls_image_file_at(lower(name, (size_t)len + 1)), name, (size_t)len + 1))
        out->place = LS_IMAGE_FOLDER;
}

bool ls_image_has(const char *path)
{
    ls_image_found found;
    ls_image_find(path, &found);
    return found.place != LS_IMAGE_DISK;
}

bool ls_image_has_file(const char *path)
{
    ls_image_found found;
    ls_image_find(path, &found);
    return found.place == LS_IMAGE_FILE || found.path != path;
}

void ls_image_info(const ls_image_file *file, ls_file_info *info)
{
    *info = (ls_file_info){.type = LS_FILE_DIRECTORY};
    if (file == NULL) return;
    info->type = LS_FILE_REGULAR;
    info->bytes = file->bytes;
    info->tag = file->tag;
    info->coded = (file->flags & LS_IMAGE_CODED) != 0;
    info->file = file->at;
}

int ls_file_stat(const char *path, ls_file_info *info)
{
    ls_image_found found;
    ls_image_find(path, &found);
    if (found.place == LS_IMAGE_DISK) return ls_file_stat_on_disk(found.path, info);
    ls_image_info(found.file, info);
    return LS_OK;
}

/* ---- listing ------------------------------------------------------------------------------------------------------ */

static bool has_name(const ls_file_names *names, unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(names->names[i].name, name) == 0) return true;
    return false;
}

/* Make room for `more` names. */
static int grow(ls_file_names **names, size_t more)
{
    ls_file_names *grown = realloc(*names, sizeof *grown + ((*names)->count + more) * sizeof grown->names[0]);
    if (grown == NULL) return LS_ENOMEM;
    *names = grown;
    return LS_OK;
}

/* Move the names of the disk that are not there yet. */
static int add_disk(ls_file_names **names, const char *path, const char *beneath, unsigned most)
{
    const unsigned known = (*names)->count;
    ls_file_names *more;
    int err = ls_file_list_on_disk(path, beneath, most, &more);
    if (err < 0) return err == LS_ENOENT ? LS_OK : err;
    err = grow(names, more->count);
    for (unsigned i = 0; i < more->count && err == LS_OK; i++) {
        if (has_name(*names, known, more->names[i].name)) continue;
        (*names)->names[(*names)->count++] = more->names[i];
        more->names[i].name = NULL;
    }
    (*names)->more |= more->more;
    ls_file_names_free(more);
    return err;
}

/* Add the files and folders in the folder `name`, whose len bytes end with a slash; "": the directory of the program. */
static int add_inside(ls_file_names **names, const char *name, size_t len, unsigned most)
{
    const ls_image_file *file;
    for (size_t n = lower(name, len); begins(file = ls_image_file_at(n), name, len); n++) {
        const char *own = file->name + len, *slash = memchr(own, '/', file->name_len - len);
        const size_t own_len = slash != NULL ? (size_t)(slash - own) : file->name_len - len;
        if (file->flags & LS_IMAGE_MADE) continue;
        char *copy = malloc(own_len + 1);
        if (copy == NULL || grow(names, 1) < 0) {
            free(copy);
            return LS_ENOMEM;
        }
        memcpy(copy, own, own_len);
        copy[own_len] = '\0';
        const bool known = has_name(*names, (*names)->count, copy);
        if (known || (*names)->count == most) {
            (*names)->more |= !known;
            free(copy);
            continue;
        }
        struct ls_file_name *entry = &(*names)->names[(*names)->count++];
        *entry = (struct ls_file_name){.name = copy};
        ls_image_info(slash != NULL ? NULL : file, &entry->info);
    }
    return LS_OK;
}

int ls_file_list(const char *path, const char *beneath, unsigned most, ls_file_names **out)
{
    char name[LS_PATH_BYTES + 1];
    ls_image_found found;
    int err = LS_OK;
    const long len = name_of(path, name);
    if (len < 0) return ls_file_list_on_disk(path, beneath, most, out);
    ls_image_find(path, &found);
    if (found.place == LS_IMAGE_FILE) return LS_ENOTDIR;
    ls_file_names *names = calloc(1, sizeof *names);
    if (names == NULL) return LS_ENOMEM;
    if (found.path != path) err = add_disk(&names, found.path, image.overlay, most);
    if (len > 0) name[len] = '/';
    if (err == LS_OK) err = add_inside(&names, name, (size_t)len + (len > 0), most);
    const bool is_there = found.path != path || found.place == LS_IMAGE_FOLDER;
    if (err == LS_OK && !is_there) {
        ls_file_names_free(names);
        return ls_file_list_on_disk(path, beneath, most, out);
    }
    if (err == LS_OK) err = add_disk(&names, path, beneath, most);
    for (; err == LS_OK && names->count > most; names->more = true) free(names->names[--names->count].name);
    if (err < 0)
        ls_file_names_free(names);
    else
        *out = names;
    return err;
}
