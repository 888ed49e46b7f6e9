/* sim_disk.c - files and folders below /sim, in memory: what is durable, and what a crash may lose. See sim.h.
 *
 * Each file has two contents: `now`, which calls see, and `kept`, which is on the device; between them lie its changes
 * in their order. fsync carries out those before it on `kept`. A crash carries out some of the others: it cuts the file
 * into pieces of 512 bytes to 4 KiB, and each piece is at its own moment, drawn from the seed. The names likewise: the
 * journal of ext4 keeps their order, so a crash leaves them as they were at one moment, not before the last one that was
 * made durable by an fsync of the folder, or of a file for its own name.
 *
 * All of this lies in the image, memory that the next process finds at the same address. What ends with the process:
 * descriptors, locks, and the memory of mmap. No call gives the turn away while it changes the image. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/sim/sim.h"

enum { PATH_BYTES = 160, INODES_MAX = 256, NAMES_MAX = 256, OPS_MAX = 256, CLASSES = 40, LEAST_BYTES = 64, MAPS_MAX = 256 };
enum { SECTOR_BYTES = 512, PIECE_SECTORS = 8, UNSYNCED_MAX = 4 << 20, SYNC_US_MAX = 8000, FULL_US_MAX = 2000000 };

typedef struct content {
    char *at; /* zeros after `size` */
    uint64_t size, room;
} content;

typedef struct change { /* bytes that were written, or, `cuts`: the new size */
    struct change *next;
    uint64_t at, len, number;
    bool cuts;
    char bytes[];
} change;

typedef struct inode {
    bool is_used, is_folder;
    unsigned mode, opens;
    uint64_t modified_ns;
    content now, kept;
    change *first, *last;
    uint64_t unsynced; /* bytes of the changes */
} inode;

typedef struct name {
    char path[PATH_BYTES];
    inode *of;
} name;

typedef struct names {
    unsigned count;
    name rows[NAMES_MAX];
} names;

typedef struct op { /* of names. of: NULL: `path` was removed; from: not empty: it was `from` before */
    char path[PATH_BYTES], from[PATH_BYTES];
    inode *of;
} op;

typedef struct image {
    char *next, *end;
    void *lists[CLASSES]; /* free blocks, by powers of two */
    inode inodes[INODES_MAX];
    names now, kept;
    op ops[OPS_MAX]; /* between the two */
    unsigned op_count;
    uint64_t ops_kept, changes; /* so many ever */
} image;

typedef struct opened {
    ls_sim_file file; /* first */
    inode *of;
    uint64_t at;
    bool appends;
} opened;

static image *disk;
static struct {
    const inode *of;
    uint64_t offset, bytes;
    char *at;
} maps[MAPS_MAX];
static unsigned map_count;
static uint64_t full_until_ns, crash_after;
static void (*crash_fn)(void);

static long failed(int error)
{
    errno = error;
    return -1;
}

static long of_system(long result)
{
    return result >= 0 ? result : failed((int)-result);
}

/* ---- the image -------------------------------------------------------------------------------------------------- */

static unsigned class_of(uint64_t bytes)
{
    unsigned class = 0;
    while ((uint64_t)LEAST_BYTES << class < bytes) class++;
    return class;
}

static void *take(uint64_t bytes)
{
    const unsigned class = class_of(bytes);
    void *const block = disk->lists[class];
    if (block != NULL) {
        disk->lists[class] = *(void **)block;
        return block;
    }
    if ((uint64_t)(disk->end - disk->next) < (uint64_t)LEAST_BYTES << class) ls_sim_fail("the image of the disk is full");
    disk->next += (uint64_t)LEAST_BYTES << class;
    return disk->next - ((uint64_t)LEAST_BYTES << class);
}

static void give_back(void *block, uint64_t bytes)
{
    const unsigned class = class_of(bytes);
    if (block == NULL) return;
    *(void **)block = disk->lists[class];
    disk->lists[class] = block;
}

static void resize(content *c, uint64_t size)
{
    if (size > c->room) {
        content larger = {.room = (uint64_t)LEAST_BYTES << class_of(size)};
        larger.at = memset(take(larger.room), 0, larger.room);
        if (c->at != NULL) memcpy(larger.at, c->at, c->size);
        give_back(c->at, c->room);
        c->at = larger.at;
        c->room = larger.room;
    } else if (size < c->size) {
        memset(c->at + size, 0, c->size - size);
    }
    c->size = size;
}

/* Carry out the part of a change that lies in the bytes from `at` to `end`. */
static void apply(content *c, const change *done, uint64_t at, uint64_t end)
{
    const uint64_t done_end = done->cuts ? c->size : done->at + done->len;
    if (at < done->at) at = done->at;
    if (end > done_end) end = done_end;
    if (at >= end) return;
    if (done->cuts)
        memset(c->at + at, 0, end - at);
    else
        memcpy(c->at + at, done->bytes + (at - done->at), end - at);
}

static uint64_t size_after(const change *done, uint64_t size)
{
    return done->cuts || size < done->at + done->len ? done->at + done->len : size;
}

static void drop_first(inode *f)
{
    change *const c = f->first;
    if ((f->first = c->next) == NULL) f->last = NULL;
    f->unsynced -= c->cuts ? 0 : c->len;
    give_back(c, sizeof *c + (c->cuts ? 0 : c->len));
}

/* The changes up to this number are on the device. */
static void keep(inode *f, uint64_t number)
{
    for (; f->first != NULL && f->first->number <= number; drop_first(f)) {
        resize(&f->kept, size_after(f->first, f->kept.size));
        apply(&f->kept, f->first, 0, UINT64_MAX);
    }
}

static void note_change(inode *f, const void *bytes, uint64_t at, uint64_t len)
{
    change *const c = take(sizeof *c + (bytes != NULL ? len : 0));
    *c = (change){.at = at, .len = len, .number = ++disk->changes, .cuts = bytes == NULL};
    if (bytes != NULL) memcpy(c->bytes, bytes, len);
    if (f->last != NULL)
        f->last->next = c;
    else
        f->first = c;
    f->last = c;
    f->modified_ns = ls_sim_now_ns();
    resize(&f->now, size_after(c, f->now.size));
    apply(&f->now, c, 0, UINT64_MAX);
    if ((f->unsynced += bytes != NULL ? len : 0) > UNSYNCED_MAX) keep(f, disk->changes); /* the system writes by itself, too */
}

static name *find(names *in, const char *path)
{
    for (name *n = in->rows; n < in->rows + in->count; n++)
        if (strcmp(n->path, path) == 0) return n;
    return NULL;
}

static void set_name(names *in, const char *path, inode *of)
{
    name *n = find(in, path);
    if (of == NULL) {
        if (n != NULL) *n = in->rows[--in->count];
        return;
    }
    if (n == NULL && in->count == NAMES_MAX) ls_sim_fail("the disk has too many names");
    if (n == NULL) n = &in->rows[in->count++];
    (void)snprintf(n->path, sizeof n->path, "%s", path);
    n->of = of;
}

static void apply_op(names *to, const op *o)
{
    const size_t len = strlen(o->from);
    set_name(to, o->path, o->of);
    if (len == 0) return;
    set_name(to, o->from, NULL);
    for (name *n = to->rows; n < to->rows + to->count; n++) { /* what lies in a folder moves with it */
        char path[2 * PATH_BYTES];
        if (strncmp(n->path, o->from, len) != 0 || n->path[len] != '/') continue;
        (void)snprintf(path, sizeof path, "%s%s", o->path, n->path + len);
        (void)snprintf(n->path, sizeof n->path, "%.*s", PATH_BYTES - 1, path);
    }
}

static void keep_names(uint64_t number)
{
    unsigned count = 0;
    while (count < disk->op_count && disk->ops_kept < number) {
        apply_op(&disk->kept, &disk->ops[count++]);
        disk->ops_kept++;
    }
    memmove(disk->ops, disk->ops + count, (disk->op_count - count) * sizeof disk->ops[0]);
    disk->op_count -= count;
}

static void rename_to(const char *path, const char *from, inode *of)
{
    if (disk->op_count == OPS_MAX) keep_names(disk->ops_kept + OPS_MAX / 2);
    op *const o = &disk->ops[disk->op_count++];
    *o = (op){.of = of};
    (void)snprintf(o->path, sizeof o->path, "%s", path);
    (void)snprintf(o->from, sizeof o->from, "%s", from);
    apply_op(&disk->now, o);
}

static bool has_name(const inode *f)
{
    for (const name *n = disk->now.rows; n < disk->now.rows + disk->now.count; n++)
        if (n->of == f) return true;
    return false;
}

static inode *new_inode(bool is_folder, unsigned mode)
{
    for (inode *f = disk->inodes; f < disk->inodes + INODES_MAX; f++) {
        bool is_named = has_name(f);
        for (unsigned i = 0; i < disk->kept.count; i++) is_named |= disk->kept.rows[i].of == f;
        for (unsigned i = 0; i < disk->op_count; i++) is_named |= disk->ops[i].of == f;
        for (unsigned i = 0; i < map_count; i++) is_named |= maps[i].of == f;
        if (f->is_used && (is_named || f->opens > 0)) continue;
        while (f->first != NULL) drop_first(f);
        give_back(f->now.at, f->now.room);
        give_back(f->kept.at, f->kept.room);
        *f = (inode){.is_used = true, .is_folder = is_folder, .mode = mode, .modified_ns = ls_sim_now_ns()};
        return f;
    }
    ls_sim_fail("the disk has too many files");
}

/* ---- a crash ---------------------------------------------------------------------------------------------------- */

static void crash_file(inode *f)
{
    enum { NOTHING, ALL, MOMENT, PIECES } how = (unsigned)ls_sim_below(4);
    uint64_t count = 0, end = f->kept.size, size = f->kept.size;
    for (const change *c = f->first; c != NULL; c = c->next) {
        count++;
        if (c->at + c->len > end) end = c->at + c->len;
    }
    const uint64_t moment = how == NOTHING ? 0 : how == ALL ? count : ls_sim_below(count + 1);
    uint64_t n = 0;
    for (const change *c = f->first; c != NULL && n++ < moment; c = c->next) size = size_after(c, size);
    resize(&f->kept, end);
    for (uint64_t at = 0, next; at < end; at = next) {
        const uint64_t last = how == PIECES ? ls_sim_below(2) * (1 + ls_sim_below(count)) : moment;
        next = at + SECTOR_BYTES * (1 + ls_sim_below(PIECE_SECTORS));
        n = 0;
        for (const change *c = f->first; c != NULL && n++ < last; c = c->next) apply(&f->kept, c, at, next);
    }
    resize(&f->kept, size);
    ls_sim_step("crash of a file", f - disk->inodes, (int64_t)(how * 1000000 + count));
    while (f->first != NULL) drop_first(f);
    resize(&f->now, 0);
    resize(&f->now, size);
    if (size > 0) memcpy(f->now.at, f->kept.at, size);
}

void ls_sim_disk_begin(void *memory, size_t bytes, unsigned life)
{
    disk = memory;
    if (life == 1) {
        disk->next = (char *)memory + (sizeof *disk + LEAST_BYTES - 1) / LEAST_BYTES * LEAST_BYTES;
        disk->end = (char *)memory + bytes;
        inode *const root = new_inode(true, 0755);
        set_name(&disk->now, "/sim", root);
        set_name(&disk->kept, "/sim", root);
        return;
    }
    const unsigned lost = (unsigned)ls_sim_below(2) * (unsigned)ls_sim_below(disk->op_count + 1);
    keep_names(disk->ops_kept + disk->op_count - lost);
    disk->op_count = 0;
    disk->now = disk->kept;
    ls_sim_step("crash of names", disk->now.count, lost);
    for (inode *f = disk->inodes; f < disk->inodes + INODES_MAX; f++) {
        f->opens = 0;
        if (f->first != NULL) crash_file(f);
    }
}

void ls_sim_disk_crash_after(uint64_t changes, void (*fn)(void))
{
    crash_after = changes;
    crash_fn = fn;
}

/* Each call begins with it: before the image is looked at, as others may get the turn. */
static void begin_call(const char *what, bool changes)
{
    enum { FIRST_BYTES = 64 << 20 };
    ls_sim_call(what, 0);
    if (disk == NULL) ls_sim_disk_begin(mmap(NULL, FIRST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), FIRST_BYTES, 1);
    if (changes && crash_after > 0 && --crash_after == 0) crash_fn();
}

static bool is_full(void)
{
    if (ls_sim_faults_now.write_full > 0 && ls_sim_now_ns() < full_until_ns) return true;
    if (!ls_sim_chance(ls_sim_faults_now.write_full)) return false;
    full_until_ns = ls_sim_now_ns() + 1000 * ls_sim_below(FULL_US_MAX);
    ls_sim_step("the disk is full", (int64_t)full_until_ns, 0);
    return true;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

static ssize_t read_at(const inode *f, void *to, size_t len, uint64_t at)
{
    if (f->is_folder) return failed(EISDIR);
    if (at >= f->now.size) return 0;
    if (len > f->now.size - at) len = f->now.size - at;
    memcpy(to, f->now.at + at, len);
    return (ssize_t)len;
}

static ssize_t write_at(inode *f, const void *from, size_t len, uint64_t at)
{
    if (len == 0) return 0;
    if (at + len > f->now.size && is_full()) {
        if (at >= f->now.size) return failed(ENOSPC);
        len = f->now.size - at;
    } else if (len > 1 && ls_sim_chance(ls_sim_faults_now.write_short)) {
        len = 1 + ls_sim_below(len - 1);
    }
    ls_sim_step("disk write", f - disk->inodes, (int64_t)(at << 20 | len));
    note_change(f, from, at, len);
    return (ssize_t)len;
}

static opened *opened_of(ls_sim_file *file)
{
    return (opened *)(void *)file;
}

static ssize_t disk_read(ls_sim_file *file, void *to, size_t len)
{
    const ssize_t n = read_at(opened_of(file)->of, to, len, opened_of(file)->at);
    if (n > 0) opened_of(file)->at += (uint64_t)n;
    return n;
}

static ssize_t disk_write(ls_sim_file *file, const void *from, size_t len)
{
    opened *const o = opened_of(file);
    begin_call("write", true);
    if (o->appends) o->at = o->of->now.size;
    const ssize_t n = write_at(o->of, from, len, o->at);
    if (n > 0) o->at += (uint64_t)n;
    return n;
}

static void disk_close(ls_sim_file *file)
{
    opened_of(file)->of->opens--;
    free(file);
}

static void fill(const inode *f, struct stat *out)
{
    const uint64_t ns = UINT64_C(1767225600000000000) + f->modified_ns; /* as sim_world.c has it */
    *out = (struct stat){.st_dev = 1, .st_ino = 1 + (ino_t)(f - disk->inodes), .st_nlink = has_name(f), .st_blksize = 4096};
    out->st_mode = f->mode | (f->is_folder ? S_IFDIR : S_IFREG);
    out->st_uid = geteuid();
    out->st_size = (off_t)f->now.size;
    out->st_blocks = (blkcnt_t)((f->now.size + SECTOR_BYTES - 1) / SECTOR_BYTES);
    out->st_mtim = out->st_ctim = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

static void disk_stat(ls_sim_file *file, struct stat *out)
{
    fill(opened_of(file)->of, out);
}

static const ls_sim_kind disk_kind = {.name = "file", .read = disk_read, .write = disk_write, .close = disk_close, .stat = disk_stat};

static ssize_t random_read(ls_sim_file *file, void *to, size_t len)
{
    (void)file;
    return getrandom(to, len, 0);
}

static void random_close(ls_sim_file *file)
{
    free(file);
}

static const ls_sim_kind random_kind = {.name = "random", .read = random_read, .close = random_close};

/* The inode of a descriptor below /sim; NULL: not one. */
static inode *inode_of(int fd)
{
    ls_sim_file *const file = ls_sim_file_of(fd, &disk_kind);
    if (file == NULL && errno == ENOTSOCK) errno = EINVAL;
    return file != NULL ? opened_of(file)->of : NULL;
}

ssize_t pread(int fd, void *to, size_t len, off_t at)
{
    if (!ls_sim_fd_is(fd)) return of_system(ls_sim_syscall(SYS_pread64, fd, (long)to, (long)len, at, 0, 0));
    begin_call("pread", false);
    const inode *const f = inode_of(fd);
    return f != NULL ? read_at(f, to, len, (uint64_t)at) : -1;
}

ssize_t pwrite(int fd, const void *from, size_t len, off_t at)
{
    if (!ls_sim_fd_is(fd)) return of_system(ls_sim_syscall(SYS_pwrite64, fd, (long)from, (long)len, at, 0, 0));
    begin_call("pwrite", true);
    inode *const f = inode_of(fd);
    return f != NULL ? write_at(f, from, len, (uint64_t)at) : -1;
}

int ftruncate(int fd, off_t size)
{
    if (!ls_sim_fd_is(fd)) return (int)of_system(ls_sim_syscall(SYS_ftruncate, fd, size, 0, 0, 0, 0));
    begin_call("truncate", true);
    inode *const f = inode_of(fd);
    if (f == NULL) return -1;
    ls_sim_step("disk truncate", f - disk->inodes, size);
    note_change(f, NULL, (uint64_t)size, 0);
    for (unsigned i = 0; i < map_count; i++)
        if (maps[i].of == f && maps[i].offset + maps[i].bytes > (uint64_t)size) memset(maps[i].at, 0, maps[i].bytes);
    return 0;
}

static bool is_in(const char *path, const char *folder)
{
    const size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && path[len] == '/' && strchr(path + len + 1, '/') == NULL;
}

int fsync(int fd)
{
    uint64_t names_number = 0;
    if (!ls_sim_fd_is(fd)) return (int)of_system(ls_sim_syscall(SYS_fsync, fd, 0, 0, 0, 0, 0));
    begin_call("fsync", true);
    inode *const f = inode_of(fd);
    if (f == NULL) return -1;
    const uint64_t number = disk->changes; /* later changes are not part of it */
    for (unsigned i = 0; i < disk->op_count; i++) {
        bool is_of = disk->ops[i].of == f;
        for (const name *n = disk->now.rows; n < disk->now.rows + disk->now.count; n++)
            is_of |= n->of == f && (is_in(disk->ops[i].path, n->path) || is_in(disk->ops[i].from, n->path));
        if (is_of) names_number = disk->ops_kept + i + 1;
    }
    f->opens++;
    ls_sim_compute(1000 * (20 + ls_sim_below(1 + ls_sim_below(SYNC_US_MAX))));
    f->opens--;
    ls_sim_step("disk sync", f - disk->inodes, (int64_t)number);
    keep(f, number);
    keep_names(names_number);
    begin_call("synced", true);
    return 0;
}

int fdatasync(int fd)
{
    return fsync(fd);
}

int fchmod(int fd, mode_t mode)
{
    if (!ls_sim_fd_is(fd)) return (int)of_system(ls_sim_syscall(SYS_fchmod, fd, mode, 0, 0, 0, 0));
    inode *const f = inode_of(fd);
    if (f != NULL) f->mode = mode & 07777;
    return f != NULL ? 0 : -1;
}

int fchown(int fd, uid_t user, gid_t group)
{
    if (ls_sim_fd_is(fd)) return inode_of(fd) != NULL ? 0 : -1;
    return (int)of_system(ls_sim_syscall(SYS_fchown, fd, user, group, 0, 0, 0));
}

/* The same bytes of a file are the same memory; it does not become part of its content. */
void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!ls_sim_fd_is(fd)) return mmap(at, bytes, protection, flags, fd, offset);
    const inode *const f = inode_of(fd);
    if (f == NULL) return MAP_FAILED;
    for (unsigned i = 0; i < map_count; i++)
        if (maps[i].of == f && maps[i].offset == (uint64_t)offset && maps[i].bytes == bytes) return maps[i].at;
    if (map_count == MAPS_MAX) ls_sim_fail("more than %d pieces of files in memory", MAPS_MAX);
    char *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    maps[map_count].of = f;
    maps[map_count].offset = (uint64_t)offset;
    maps[map_count].bytes = bytes;
    maps[map_count].at = memory;
    map_count++;
    return memory;
}

int munmap(void *at, size_t bytes)
{
    for (unsigned i = 0; i < map_count; i++)
        if (maps[i].at == at) return 0;
    return (int)of_system(ls_sim_syscall(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0));
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

bool ls_sim_path_is(const char *path)
{
    return strncmp(path, "/sim", 4) == 0 && (path[4] == '/' || path[4] == '\0');
}

/* Without empty parts and "."; links and ".." there are none. */
static int plain(const char *path, char out[PATH_BYTES])
{
    size_t len = 0;
    for (; *path != '\0'; path++) {
        if (*path == '/' && (path[1] == '/' || path[1] == '\0')) continue;
        if (*path == '/' && path[1] == '.' && (path[2] == '/' || path[2] == '\0')) {
            path++;
            continue;
        }
        if (len == PATH_BYTES - 1) return (int)failed(ENAMETOOLONG);
        out[len++] = *path;
    }
    out[len] = '\0';
    return 0;
}

/* The inode of the path, NULL and its plain form if there is none, but its folder; -1: an error. */
static int look_up(const char *path, char out[PATH_BYTES], inode **of)
{
    char folder[PATH_BYTES];
    if (plain(path, out) < 0) return -1;
    const name *const n = find(&disk->now, out), *parent;
    *of = n != NULL ? n->of : NULL;
    if (n != NULL) return 0;
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(out, '/') - out), out);
    parent = find(&disk->now, folder);
    if (parent != NULL && parent->of->is_folder) return 0;
    return (int)failed(parent != NULL ? ENOTDIR : ENOENT);
}

int ls_sim_disk_open(const char *path, int flags, unsigned mode)
{
    char at[PATH_BYTES];
    inode *f;
    begin_call("open", (flags & (O_CREAT | O_TRUNC)) != 0);
    if (look_up(path, at, &f) < 0) return -1;
    if (f == NULL && !(flags & O_CREAT)) return (int)failed(ENOENT);
    if (f != NULL && (flags & O_CREAT) && (flags & O_EXCL)) return (int)failed(EEXIST);
    if (f != NULL && f->is_folder && (flags & (O_WRONLY | O_RDWR))) return (int)failed(EISDIR);
    if (f != NULL && !f->is_folder && (flags & O_DIRECTORY)) return (int)failed(ENOTDIR);
    if (f == NULL && is_full()) return (int)failed(ENOSPC);
    opened *const o = calloc(1, sizeof *o);
    const int fd = ls_sim_fd_open(&o->file, &disk_kind, false);
    if (fd < 0) {
        free(o);
        return -1;
    }
    if (f == NULL) rename_to(at, "", f = new_inode(false, mode & 0777));
    if ((flags & O_TRUNC) && f->now.size > 0) note_change(f, NULL, 0, 0);
    o->of = f;
    o->appends = (flags & O_APPEND) != 0;
    f->opens++;
    ls_sim_step("disk open", f - disk->inodes, fd);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (ls_sim_path_is(path)) return ls_sim_disk_open(path, flags, mode);
    if (strcmp(path, "/dev/urandom") != 0)
        return (int)of_system(ls_sim_syscall(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0));
    ls_sim_file *const file = calloc(1, sizeof *file);
    const int fd = ls_sim_fd_open(file, &random_kind, false);
    if (fd < 0) free(file);
    return fd;
}

static int stat_of(const char *path, struct stat *out, int flags)
{
    char at[PATH_BYTES];
    inode *f;
    if (!ls_sim_path_is(path)) return (int)of_system(ls_sim_syscall(SYS_newfstatat, AT_FDCWD, (long)path, (long)out, flags, 0, 0));
    begin_call("stat", false);
    if (look_up(path, at, &f) < 0) return -1;
    if (f == NULL) return (int)failed(ENOENT);
    fill(f, out);
    return 0;
}

int stat(const char *restrict path, struct stat *restrict out)
{
    return stat_of(path, out, 0);
}

int lstat(const char *restrict path, struct stat *restrict out)
{
    return stat_of(path, out, AT_SYMLINK_NOFOLLOW);
}

int access(const char *path, int how)
{
    struct stat st;
    if (ls_sim_path_is(path)) return stat(path, &st);
    return (int)of_system(ls_sim_syscall(SYS_faccessat, AT_FDCWD, (long)path, how, 0, 0, 0));
}

ssize_t readlink(const char *restrict path, char *restrict out, size_t len)
{
    struct stat st;
    if (!ls_sim_path_is(path)) return of_system(ls_sim_syscall(SYS_readlinkat, AT_FDCWD, (long)path, (long)out, (long)len, 0, 0));
    return stat(path, &st) < 0 ? -1 : failed(EINVAL);
}

char *realpath(const char *restrict path, char *restrict out)
{
    static char *(*real)(const char *, char *);
    struct stat st;
    char at[PATH_BYTES];
    if (!ls_sim_path_is(path)) {
        if (real == NULL) real = (char *(*)(const char *, char *))ls_sim_real("realpath");
        return real(path, out);
    }
    if (stat(path, &st) < 0 || plain(path, at) < 0) return NULL;
    return out != NULL ? strcpy(out, at) : strdup(at);
}

int mkdir(const char *path, mode_t mode)
{
    char at[PATH_BYTES];
    inode *f;
    if (!ls_sim_path_is(path)) return (int)of_system(ls_sim_syscall(SYS_mkdirat, AT_FDCWD, (long)path, mode, 0, 0, 0));
    begin_call("mkdir", true);
    if (look_up(path, at, &f) < 0) return -1;
    if (f != NULL || is_full()) return (int)failed(f != NULL ? EEXIST : ENOSPC);
    rename_to(at, "", new_inode(true, mode & 0777));
    return 0;
}

static bool is_empty(const char *folder)
{
    for (const name *n = disk->now.rows; n < disk->now.rows + disk->now.count; n++)
        if (is_in(n->path, folder)) return false;
    return true;
}

static int remove_one(const char *path, bool folders, bool files)
{
    char at[PATH_BYTES];
    inode *f;
    begin_call("remove", true);
    if (look_up(path, at, &f) < 0) return -1;
    if (f == NULL) return (int)failed(ENOENT);
    if (f->is_folder ? !folders : !files) return (int)failed(f->is_folder ? EISDIR : ENOTDIR);
    if (!is_empty(at)) return (int)failed(ENOTEMPTY);
    ls_sim_step("disk remove", f - disk->inodes, 0);
    rename_to(at, "", NULL);
    return 0;
}

int unlink(const char *path)
{
    if (ls_sim_path_is(path)) return remove_one(path, false, true);
    return (int)of_system(ls_sim_syscall(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0));
}

int rmdir(const char *path)
{
    if (ls_sim_path_is(path)) return remove_one(path, true, false);
    return (int)of_system(ls_sim_syscall(SYS_unlinkat, AT_FDCWD, (long)path, AT_REMOVEDIR, 0, 0, 0));
}

int remove(const char *path)
{
    if (ls_sim_path_is(path)) return remove_one(path, true, true);
    if (unlink(path) == 0) return 0;
    return errno == EISDIR ? rmdir(path) : -1;
}

int rename(const char *from, const char *to)
{
    char at[PATH_BYTES], new_at[PATH_BYTES];
    inode *f, *old;
    if (!ls_sim_path_is(from) && !ls_sim_path_is(to))
        return (int)of_system(ls_sim_syscall(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0, 0));
    if (!ls_sim_path_is(from) || !ls_sim_path_is(to)) return (int)failed(EXDEV);
    begin_call("rename", true);
    if (look_up(from, at, &f) < 0 || look_up(to, new_at, &old) < 0) return -1;
    if (f == NULL) return (int)failed(ENOENT);
    if (old != NULL && old->is_folder != f->is_folder) return (int)failed(old->is_folder ? EISDIR : ENOTDIR);
    if (old != NULL && old->is_folder && !is_empty(new_at)) return (int)failed(ENOTEMPTY);
    ls_sim_step("disk rename", f - disk->inodes, 0);
    if (old != f) rename_to(new_at, at, f);
    return 0;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static ssize_t stream_read(void *fd, char *to, size_t len)
{
    return read((int)(intptr_t)fd, to, len);
}

static ssize_t stream_write(void *fd, const char *from, size_t len)
{
    const ssize_t n = write((int)(intptr_t)fd, from, len);
    return n < 0 ? 0 : n; /* fopencookie(3): 0 is an error */
}

static int stream_seek(void *fd, off64_t *offset, int whence)
{
    opened *const o = opened_of(ls_sim_file_of((int)(intptr_t)fd, &disk_kind));
    if (o == NULL) return -1;
    const int64_t at = (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)o->at : (int64_t)o->of->now.size) + *offset;
    if (at < 0) return (int)failed(EINVAL);
    o->at = (uint64_t)at;
    *offset = at;
    return 0;
}

static int stream_close(void *fd)
{
    return close((int)(intptr_t)fd);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    static FILE *(*real)(const char *, const char *);
    if (!ls_sim_path_is(path)) {
        errno = ENOENT; /* the times of processors are those of another world */
        if (strncmp(path, "/proc/", 6) == 0) return NULL;
        if (real == NULL) real = (FILE *(*)(const char *, const char *))ls_sim_real("fopen");
        return real(path, mode);
    }
    const int flags = mode[0] == 'r' ? 0 : O_CREAT | (mode[0] == 'a' ? O_APPEND : O_TRUNC);
    const int fd = ls_sim_disk_open(path, flags | (strchr(mode, '+') != NULL ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY), 0666);
    if (fd < 0) return NULL;
    return fopencookie((void *)(intptr_t)fd, mode, (cookie_io_functions_t){stream_read, stream_write, stream_seek, stream_close});
}

/* ---- the names with 64 ------------------------------------------------------------------------------------------ */

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
ssize_t pread64(int fd, void *to, size_t len, off64_t at) __attribute__((alias("pread")));
ssize_t pwrite64(int fd, const void *from, size_t len, off64_t at) __attribute__((alias("pwrite")));
int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));
FILE *fopen64(const char *restrict path, const char *restrict mode) __attribute__((alias("fopen")));

int stat64(const char *restrict path, struct stat64 *restrict out)
{
    return stat_of(path, (struct stat *)(void *)out, 0);
}

int lstat64(const char *restrict path, struct stat64 *restrict out)
{
    return stat_of(path, (struct stat *)(void *)out, AT_SYMLINK_NOFOLLOW);
}

int fstat64(int fd, struct stat64 *out)
{
    return fstat(fd, (struct stat *)(void *)out);
}
