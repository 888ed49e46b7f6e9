/* sim_disk.c - files and folders below /sim, in memory: what is durable, and what a crash may lose. See sim.h.
 *
 * Each file has two contents: `now`, which calls see, and `kept`, which is on the device; between them lie its changes
 * in their order. fsync carries out those before it on `kept`. A crash carries out some of the others: it divides the
 * file into pieces of 512 bytes to 4 KiB, and each piece is at its own moment, drawn from the seed. The names likewise:
 * the journal of ext4 keeps their order, so a crash leaves them as they were at one moment, not before the last one that
 * was made durable by an fsync of a folder, or of a file for its own name.
 *
 * All of this lies in the image, memory that the next process finds at the same address; its pages are made when they
 * are used. What ends with the process: descriptors, locks, and the memory of mmap. Nothing here gives the turn away
 * while it changes the image. */
#define _GNU_SOURCE
#include "port/sim/sim_disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { INODES_MAX = 128, NAMES_MAX = 200, MOMENTS_MAX = 64, SECTOR_BYTES = 512, PIECE_SECTORS = 8 };
enum { SYNC_US_MAX = 8000, FULL_US_MAX = 2000000 };

typedef struct change { /* bytes that were written, or, `truncates`: `at` is the new size */
    uint64_t at, len, number;
    bool truncates;
    char bytes[];
} change;

typedef struct names {
    unsigned count;
    struct {
        char path[LS_SIM_PATH_BYTES];
        ls_sim_inode *of;
    } rows[NAMES_MAX];
} names;

typedef struct image {
    ls_sim_inode inodes[INODES_MAX];
    names moments[MOMENTS_MAX]; /* the first: of the device; the last: what calls see; between: after each change */
    unsigned moment_count;
    uint64_t first_moment, changes; /* its number; so many ever, of contents */
} image;

static image *disk;
static uint64_t full_until_ns, crash_after;
static void (*crash_fn)(void);

const size_t ls_sim_disk_bytes = sizeof(image);

int ls_sim_disk_number(const ls_sim_inode *f)
{
    return (int)(f - disk->inodes);
}

bool ls_sim_disk_maps(const void *at)
{
    return disk != NULL && (const char *)at >= (const char *)disk && (const char *)at < (const char *)(disk + 1);
}

/* ---- contents --------------------------------------------------------------------------------------------------- */

static change *change_at(ls_sim_inode *f, uint64_t offset)
{
    return (change *)(void *)(f->log + offset);
}

static uint64_t change_bytes(const change *c)
{
    return (sizeof *c + (c->truncates ? 0 : c->len) + 7) / 8 * 8;
}

static uint64_t size_after(const change *c, uint64_t size)
{
    return c->truncates || size < c->at + c->len ? c->at + c->len : size;
}

/* Carry out the part of a change that lies in the bytes from `first` to `end`. */
static void apply(char *to, const change *c, uint64_t first, uint64_t end)
{
    if (first < c->at) first = c->at;
    if (!c->truncates && end > c->at + c->len) end = c->at + c->len;
    if (first >= end) return;
    if (c->truncates)
        memset(to + first, 0, end - first);
    else
        memcpy(to + first, c->bytes + (first - c->at), end - first);
}

/* The changes up to this number are on the device. */
static void keep(ls_sim_inode *f, uint64_t number)
{
    while (f->log_first < f->log_end && change_at(f, f->log_first)->number <= number) {
        const change *const c = change_at(f, f->log_first);
        apply(f->kept, c, 0, f->kept_size > c->at + c->len ? f->kept_size : c->at + c->len);
        f->kept_size = size_after(c, f->kept_size);
        f->log_first += change_bytes(c);
    }
    if (f->log_first == f->log_end) f->log_first = f->log_end = 0;
}

int ls_sim_disk_write(ls_sim_inode *f, const void *bytes, uint64_t at, uint64_t len)
{
    if (at + len > LS_SIM_FILE_BYTES) return ls_sim_failed(EFBIG);
    if (f->log_end + sizeof(change) + len + 8 > LS_SIM_LOG_BYTES) keep(f, disk->changes); /* as the system does, too */
    change *const c = change_at(f, f->log_end);
    *c = (change){.at = at, .len = len, .number = ++disk->changes, .truncates = bytes == NULL};
    if (bytes != NULL) memcpy(c->bytes, bytes, len);
    f->log_end += change_bytes(c);
    apply(f->now, c, 0, f->size > at + len ? f->size : at + len);
    f->size = size_after(c, f->size);
    f->modified_ns = ls_sim_now_ns();
    ls_sim_step(bytes != NULL ? "disk write" : "disk truncate", ls_sim_disk_number(f), (int64_t)(at << 20 | len));
    return 0;
}

int ls_sim_disk_truncate(ls_sim_inode *f, uint64_t size)
{
    if (size < f->mapped_size) memset(f->mapped + size, 0, f->mapped_size - size);
    return ls_sim_disk_write(f, NULL, size, 0);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static names *seen(void)
{
    return &disk->moments[disk->moment_count - 1];
}

static void keep_names(uint64_t number)
{
    if (number <= disk->first_moment) return;
    const unsigned count = (unsigned)(number - disk->first_moment);
    memmove(disk->moments, disk->moments + count, (disk->moment_count - count) * sizeof disk->moments[0]);
    disk->moment_count -= count;
    disk->first_moment = number;
}

/* The row of the path; if it has no row, the count. */
static unsigned row_of(const names *in, const char *path)
{
    unsigned n = 0;
    while (n < in->count && strcmp(in->rows[n].path, path) != 0) n++;
    return n;
}

static void set(names *in, const char *path, ls_sim_inode *f)
{
    const unsigned n = row_of(in, path);
    if (f == NULL) {
        if (n < in->count) in->rows[n] = in->rows[--in->count];
        return;
    }
    if (n == NAMES_MAX) ls_sim_fail("the disk has too many names");
    if (n == in->count) in->count++;
    (void)snprintf(in->rows[n].path, sizeof in->rows[n].path, "%s", path);
    in->rows[n].of = f;
    f->named = disk->first_moment + disk->moment_count - 1;
}

static names *next_moment(void)
{
    if (disk->moment_count == MOMENTS_MAX) keep_names(disk->first_moment + MOMENTS_MAX / 2);
    disk->moments[disk->moment_count] = *seen();
    disk->moment_count++;
    return seen();
}

void ls_sim_disk_name(const char *path, ls_sim_inode *f)
{
    set(next_moment(), path, f);
}

void ls_sim_disk_rename(const char *from, const char *to)
{
    names *const in = next_moment();
    set(in, to, ls_sim_disk_find(from));
    set(in, from, NULL);
}

ls_sim_inode *ls_sim_disk_find(const char *path)
{
    const unsigned n = row_of(seen(), path);
    return n < seen()->count ? seen()->rows[n].of : NULL;
}

static bool is_named(const names *in, const ls_sim_inode *f)
{
    for (unsigned n = 0; n < in->count; n++)
        if (in->rows[n].of == f) return true;
    return false;
}

bool ls_sim_disk_has_name(const ls_sim_inode *f)
{
    return is_named(seen(), f);
}

ls_sim_inode *ls_sim_disk_new(bool is_folder, unsigned mode)
{
    for (ls_sim_inode *f = disk->inodes; f < disk->inodes + INODES_MAX; f++) {
        bool is_free = f->opens == 0;
        for (unsigned m = 0; m < disk->moment_count && is_free; m++) is_free = !is_named(&disk->moments[m], f);
        if (!is_free) continue;
        memset(f->now, 0, f->size);
        memset(f->kept, 0, f->kept_size);
        memset(f->mapped, 0, f->mapped_size);
        f->size = f->kept_size = f->log_first = f->log_end = 0;
        f->is_used = true;
        f->is_folder = is_folder;
        f->mode = mode;
        f->modified_ns = ls_sim_now_ns();
        return f;
    }
    ls_sim_fail("the disk has too many files");
}

/* ---- fsync, and a crash ----------------------------------------------------------------------------------------- */

void ls_sim_disk_sync(ls_sim_inode *f)
{
    const uint64_t number = disk->changes; /* later changes are not part of it */
    const uint64_t moment = f->is_folder ? disk->first_moment + disk->moment_count - 1 : f->named;
    f->opens++;
    ls_sim_compute(1000 * (20 + ls_sim_below(1 + ls_sim_below(SYNC_US_MAX))));
    f->opens--;
    ls_sim_step("disk sync", ls_sim_disk_number(f), (int64_t)number);
    keep(f, number);
    keep_names(moment);
}

static void crash_file(ls_sim_inode *f)
{
    enum { NOTHING, ALL, MOMENT, PIECES } how = (unsigned)ls_sim_below(4);
    uint64_t count = 0, end = f->kept_size, size = f->kept_size, n = 0;
    for (uint64_t at = f->log_first; at < f->log_end; at += change_bytes(change_at(f, at)), count++)
        if (change_at(f, at)->at + change_at(f, at)->len > end) end = change_at(f, at)->at + change_at(f, at)->len;
    const uint64_t moment = how == NOTHING ? 0 : how == ALL ? count : ls_sim_below(count + 1);
    for (uint64_t at = f->log_first; n < moment; at += change_bytes(change_at(f, at)), n++)
        size = size_after(change_at(f, at), size);
    for (uint64_t first = 0, next; first < end; first = next) {
        const uint64_t last = how == PIECES ? ls_sim_below(2) * ls_sim_below(count + 1) : moment;
        next = first + SECTOR_BYTES * (1 + ls_sim_below(PIECE_SECTORS));
        n = 0; /* the size is the file's, in its order: one that is lost takes the later changes with it */
        for (uint64_t at = f->log_first; at < f->log_end; at += change_bytes(change_at(f, at)), n++) {
            const change *const c = change_at(f, at);
            if (c->truncates && n >= moment) break;
            if (c->truncates || n < last) apply(f->kept, c, first, next < end ? next : end);
        }
    }
    ls_sim_step("crash of a file", ls_sim_disk_number(f), (int64_t)(how * 1000000 + count));
    memset(f->kept + size, 0, end - (size < end ? size : end));
    memset(f->now, 0, f->size);
    memcpy(f->now, f->kept, size);
    f->size = f->kept_size = size;
    f->log_first = f->log_end = 0;
}

void ls_sim_disk_begin(void *memory, unsigned life)
{
    disk = memory;
    if (life == 1) {
        disk->moment_count = 1;
        set(seen(), "/sim", ls_sim_disk_new(true, 0755));
        return;
    }
    const unsigned lost = (unsigned)ls_sim_below(2) * (unsigned)ls_sim_below(disk->moment_count);
    keep_names(disk->first_moment + disk->moment_count - 1 - lost);
    disk->moment_count = 1;
    ls_sim_step("crash of names", seen()->count, lost);
    for (ls_sim_inode *f = disk->inodes; f < disk->inodes + INODES_MAX; f++) {
        if (!f->is_used) continue;
        f->opens = 0;
        if (f->named > disk->first_moment) f->named = disk->first_moment;
        memset(f->mapped, 0, f->mapped_size);
        if (f->log_first < f->log_end) crash_file(f);
    }
}

void ls_sim_disk_crash_after(uint64_t changes, void (*fn)(void))
{
    crash_after = changes;
    crash_fn = fn;
}

void ls_sim_disk_call(bool changes)
{
    const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    ls_sim_call();
    if (disk == NULL) ls_sim_disk_begin(mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, flags, -1, 0), 1);
    if (changes && crash_after > 0 && --crash_after == 0) crash_fn();
}

bool ls_sim_disk_is_full(void)
{
    if (ls_sim_faults_now.write_full > 0 && ls_sim_now_ns() < full_until_ns) return true;
    if (!ls_sim_chance(ls_sim_faults_now.write_full)) return false;
    full_until_ns = ls_sim_now_ns() + 1000 * ls_sim_below(FULL_US_MAX);
    ls_sim_step("the disk is full", (int64_t)full_until_ns, 0);
    return true;
}
