/* system_posix.h - see system.h. */
#ifndef TESTS_UNIT_SYSTEM_POSIX_H
#define TESTS_UNIT_SYSTEM_POSIX_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "port/fd.h"

enum { SYSTEM_SLOWNESS = 1 }; /* divides the number of repetitions of long loops */

typedef struct rlimit descriptors_before;

/* Lower the limit of descriptors to those in use: no further one can be opened. */
static inline void exhaust_descriptors(descriptors_before *before)
{
    const int next = dup(0);
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    close(next);
    now = *before;
    now.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
}

static inline void restore_descriptors(const descriptors_before *before)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, before), 0);
}

/* A send to a full Unix datagram socket waits; no datagram is lost. */
static inline void need_datagrams_that_wait(void)
{
}

/* A reported error stays with the socket until it is fetched. */
static inline bool system_keeps_errors(void)
{
    return true;
}

static inline bool system_reports_removed_folders(void)
{
    return true;
}

/* A reset connection keeps its error, however often it is fetched. */
static inline bool system_resets_stay(void)
{
    return false;
}

/* The loss of a connection is seen without a receive (ls_op_watch). */
static inline bool system_watches_connections(void)
{
    return true;
}

static inline bool system_has_unix_sockets(void)
{
    return true;
}

/* Make `file` unreadable and undeletable, and `fresh` impossible to create, both in `dir`. Root ignores permissions,
 * so switch to another user meanwhile. */
typedef struct stat access_before;

static inline void deny_access(access_before *f, const char *dir, const char *file, const char *fresh)
{
    assert_int_equal(stat(dir, f), 0);
    assert_int_equal(chmod(file, 0), 0);
    assert_int_equal(chmod(dir, 0555), 0);
    if (geteuid() == 0) assert_int_equal(seteuid(65534), 0);
}

static inline void restore_access(const access_before *f, const char *dir)
{
    if (getuid() == 0) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(dir, f->st_mode & 07777), 0);
}

/* Make an empty file this long; it is a hole. */
static inline void make_sparse(ls_fd fd, uint64_t bytes)
{
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
}

static inline bool system_replaces_open_files(void)
{
    return true;
}

#endif
