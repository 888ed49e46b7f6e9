/* sim_file.c - the calls that look at files: those of paths and descriptors below /sim are answered by sim_disk.c,
 * others by the system. See sim.h. /sim is the only folder; links, ".", "..", lists of it and streams there are none. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/sim/sim_disk.h"

typedef ls_sim_inode inode;

typedef struct opened {
    ls_sim_file file; /* first */
    inode *of;
    uint64_t at;
    bool appends;
} opened;

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

static ssize_t read_at(const inode *f, void *to, size_t len, uint64_t at)
{
    if (f->is_folder) return ls_sim_failed(EISDIR);
    if (at >= f->size) return 0;
    if (len > f->size - at) len = f->size - at;
    memcpy(to, f->now + at, len);
    return (ssize_t)len;
}

static ssize_t write_at(inode *f, const void *from, size_t len, uint64_t at)
{
    if (len == 0) return 0;
    if (at + len > f->size && ls_sim_disk_is_full()) {
        if (at >= f->size) return ls_sim_failed(ENOSPC);
        len = f->size - at;
    } else if (len > 1 && ls_sim_chance(ls_sim_faults_now.write_short)) {
        len = 1 + ls_sim_below(len - 1);
    }
    return ls_sim_disk_write(f, from, at, len) < 0 ? -1 : (ssize_t)len;
}

static opened *opened_of(ls_sim_file *file)
{
    return (opened *)(void *)file;
}

static ssize_t disk_transfer(ls_sim_file *file, const struct iovec *bytes, bool writes)
{
    opened *const o = opened_of(file);
    if (!writes) return ls_sim_failed(EINVAL);
    ls_sim_disk_call(true);
    if (o->appends) o->at = o->of->size;
    const ssize_t n = write_at(o->of, bytes->iov_base, bytes->iov_len, o->at);
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
    *out = (struct stat){.st_dev = 1, .st_ino = 1 + (ino_t)(ls_sim_disk_number(f)), .st_blksize = 4096};
    out->st_nlink = ls_sim_disk_has_name(f);
    out->st_mode = f->mode | (f->is_folder ? S_IFDIR : S_IFREG);
    out->st_uid = geteuid();
    out->st_size = (off_t)f->size;
    out->st_blocks = (blkcnt_t)((f->size + 511) / 512);
    out->st_mtim = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    out->st_ctim = out->st_mtim;
}

static void disk_stat(ls_sim_file *file, struct stat *out)
{
    fill(opened_of(file)->of, out);
}

static const ls_sim_kind disk_kind = {.transfer = disk_transfer, .close = disk_close, .stat = disk_stat};

static ssize_t random_transfer(ls_sim_file *file, const struct iovec *bytes, bool writes)
{
    (void)file;
    return writes ? ls_sim_failed(EINVAL) : getrandom(bytes->iov_base, bytes->iov_len, 0);
}

static const ls_sim_kind random_kind = {.transfer = random_transfer};

/* The inode of a descriptor below /sim; NULL: not one. */
static inode *inode_of(int fd)
{
    ls_sim_file *const file = ls_sim_file_of(fd, &disk_kind);
    if (file == NULL && errno == ENOTSOCK) errno = EINVAL;
    return file != NULL ? opened_of(file)->of : NULL;
}

/* The beginning of a call with it. */
static inode *begin(int fd, bool changes)
{
    ls_sim_disk_call(changes);
    return inode_of(fd);
}

ssize_t pread(int fd, void *to, size_t len, off_t at)
{
    if (!ls_sim_fd_is(fd)) return ls_sim_result(ls_sim_syscall(SYS_pread64, fd, (long)to, (long)len, at, 0, 0));
    const inode *const f = begin(fd, false);
    return f != NULL ? read_at(f, to, len, (uint64_t)at) : -1;
}

ssize_t pwrite(int fd, const void *from, size_t len, off_t at)
{
    if (!ls_sim_fd_is(fd)) return ls_sim_result(ls_sim_syscall(SYS_pwrite64, fd, (long)from, (long)len, at, 0, 0));
    inode *const f = begin(fd, true);
    return f != NULL ? write_at(f, from, len, (uint64_t)at) : -1;
}

int ftruncate(int fd, off_t size)
{
    if (!ls_sim_fd_is(fd)) return (int)ls_sim_result(ls_sim_syscall(SYS_ftruncate, fd, size, 0, 0, 0, 0));
    inode *const f = begin(fd, true);
    return f != NULL ? ls_sim_disk_truncate(f, (uint64_t)size) : -1;
}

int fsync(int fd)
{
    if (!ls_sim_fd_is(fd)) return (int)ls_sim_result(ls_sim_syscall(SYS_fsync, fd, 0, 0, 0, 0, 0));
    inode *const f = begin(fd, true);
    if (f == NULL) return -1;
    ls_sim_disk_sync(f);
    ls_sim_disk_call(true);
    return 0;
}

int fchown(int fd, uid_t user, gid_t group)
{
    if (ls_sim_fd_is(fd)) return inode_of(fd) != NULL ? 0 : -1;
    return (int)ls_sim_result(ls_sim_syscall(SYS_fchown, fd, user, group, 0, 0, 0));
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!ls_sim_fd_is(fd)) return mmap(at, bytes, protection, flags, fd, offset);
    inode *const f = inode_of(fd);
    if (f == NULL) return MAP_FAILED;
    if ((uint64_t)offset + bytes > LS_SIM_MAPPED_BYTES) ls_sim_fail("mmap of too many bytes of a file");
    if (f->mapped_size < (uint64_t)offset + bytes) f->mapped_size = (uint64_t)offset + bytes;
    return f->mapped + offset;
}

int munmap(void *at, size_t bytes)
{
    return ls_sim_disk_maps(at) ? 0
                                : (int)ls_sim_result(ls_sim_syscall(SYS_munmap, (long)at, (long)bytes, 0, 0, 0, 0));
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static bool is_simulated(const char *path)
{
    return strncmp(path, "/sim", 4) == 0 && (path[4] == '/' || path[4] == '\0');
}

/* Without empty parts and "."; links and ".." there are none. */
static int plain(const char *path, char out[LS_SIM_PATH_BYTES])
{
    size_t len = 0;
    for (; *path != '\0'; path++) {
        if (*path == '/' && (path[1] == '/' || path[1] == '\0')) continue;
        if (len == LS_SIM_PATH_BYTES - 1) return ls_sim_failed(ENAMETOOLONG);
        out[len++] = *path;
    }
    out[len] = '\0';
    return 0;
}

/* The inode of the path, and its plain form; NULL: only its folder exists. -1: an error. */
static int look_up(const char *path, char out[LS_SIM_PATH_BYTES], inode **of)
{
    char folder[LS_SIM_PATH_BYTES];
    if (plain(path, out) < 0) return -1;
    if ((*of = ls_sim_disk_find(out)) != NULL) return 0;
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(out, '/') - out), out);
    const inode *const parent = ls_sim_disk_find(folder);
    if (parent != NULL && parent->is_folder) return 0;
    return ls_sim_failed(parent != NULL ? ENOTDIR : ENOENT);
}

/* The inode of the path, which must exist; NULL: an error. */
static inode *find(const char *path, bool changes, char out[LS_SIM_PATH_BYTES])
{
    inode *f;
    ls_sim_disk_call(changes);
    if (look_up(path, out, &f) < 0) return NULL;
    if (f == NULL) errno = ENOENT;
    return f;
}

static int open_simulated(const char *path, int flags, unsigned mode)
{
    char at[LS_SIM_PATH_BYTES];
    inode *f;
    ls_sim_disk_call((flags & (O_CREAT | O_TRUNC)) != 0);
    if (look_up(path, at, &f) < 0) return -1;
    if (f == NULL && !(flags & O_CREAT)) return ls_sim_failed(ENOENT);
    if (f != NULL && (flags & O_CREAT) && (flags & O_EXCL)) return ls_sim_failed(EEXIST);
    if (f != NULL && f->is_folder && (flags & (O_WRONLY | O_RDWR))) return ls_sim_failed(EISDIR);
    if (f != NULL && !f->is_folder && (flags & O_DIRECTORY)) return ls_sim_failed(ENOTDIR);
    if (f == NULL && ls_sim_disk_is_full()) return ls_sim_failed(ENOSPC);
    opened *const o = calloc(1, sizeof *o);
    const int fd = ls_sim_fd_open(&o->file, &disk_kind, false);
    if (fd < 0) {
        free(o);
        return -1;
    }
    if (f == NULL) ls_sim_disk_name(at, f = ls_sim_disk_new(false, mode & 0777));
    if ((flags & O_TRUNC) && f->size > 0) (void)ls_sim_disk_truncate(f, 0);
    o->of = f;
    o->appends = (flags & O_APPEND) != 0;
    f->opens++;
    ls_sim_step("disk open", ls_sim_disk_number(f), fd);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (is_simulated(path)) return open_simulated(path, flags, mode);
    if (strcmp(path, "/dev/urandom") != 0)
        return (int)ls_sim_result(ls_sim_syscall(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0));
    static ls_sim_file random;
    return ls_sim_fd_open(&random, &random_kind, false);
}

static int stat_of(const char *path, struct stat *out, int flags)
{
    char at[LS_SIM_PATH_BYTES];
    if (!is_simulated(path))
        return (int)ls_sim_result(ls_sim_syscall(SYS_newfstatat, AT_FDCWD, (long)path, (long)out, flags, 0, 0));
    const inode *const f = find(path, false, at);
    if (f != NULL) fill(f, out);
    return f != NULL ? 0 : -1;
}

int stat(const char *restrict path, struct stat *restrict out)
{
    return stat_of(path, out, 0);
}

int lstat(const char *restrict path, struct stat *restrict out)
{
    return stat_of(path, out, AT_SYMLINK_NOFOLLOW);
}

char *realpath(const char *restrict path, char *restrict out)
{
    char at[LS_SIM_PATH_BYTES];
    if (!is_simulated(path)) return LS_SIM_REAL(realpath)(path, out);
    if (find(path, false, at) == NULL) return NULL;
    return out != NULL ? strcpy(out, at) : strdup(at);
}

int unlink(const char *path)
{
    char at[LS_SIM_PATH_BYTES];
    if (!is_simulated(path)) return (int)ls_sim_result(ls_sim_syscall(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0));
    const inode *const f = find(path, true, at);
    if (f == NULL) return -1;
    ls_sim_step("disk remove", ls_sim_disk_number(f), 0);
    ls_sim_disk_name(at, NULL);
    return 0;
}

int rename(const char *from, const char *to)
{
    char at[LS_SIM_PATH_BYTES], new_at[LS_SIM_PATH_BYTES];
    inode *old;
    if (!is_simulated(from) && !is_simulated(to))
        return (int)ls_sim_result(ls_sim_syscall(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0, 0));
    if (!is_simulated(from) || !is_simulated(to)) return ls_sim_failed(EXDEV);
    const inode *const f = find(from, true, at);
    if (f == NULL || look_up(to, new_at, &old) < 0) return -1;
    ls_sim_step("disk rename", ls_sim_disk_number(f), 0);
    if (old != f) ls_sim_disk_rename(at, new_at);
    return 0;
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    errno = ENOENT; /* the times of processors are those of another world */
    if (strncmp(path, "/proc/", 6) == 0) return NULL;
    if (is_simulated(path)) ls_sim_fail("fopen of %s: streams are not simulated", path);
    return LS_SIM_REAL(fopen)(path, mode);
}

/* ---- other names ------------------------------------------------------------------------------------------------ */

#define SAME(new, old) __asm__(".globl " #new "\n.type " #new ", @function\n.set " #new ", " #old)
SAME(open64, open);
SAME(pread64, pread);
SAME(pwrite64, pwrite);
SAME(ftruncate64, ftruncate);
SAME(fdatasync, fsync);
SAME(fopen64, fopen);
SAME(stat64, stat);
SAME(lstat64, lstat);
SAME(remove, unlink);

int fstat64(int fd, struct stat64 *out)
{
    return fstat(fd, (struct stat *)(void *)out);
}
