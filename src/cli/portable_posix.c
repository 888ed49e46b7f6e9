/* portable_posix.c - what the static program (scripts/build portable) has in place of functions of the C library that load
 * shared libraries: glibc supports them only beside a glibc of its own version. Users and groups are those of /etc/passwd
 * and /etc/group; libraries cannot be loaded. (Names are looked up by c-ares; OpenSSL and c-ares have calls of getaddrinfo and
 * getservbyname that luaserve does not use.) The certificates of authorities are where the distribution has them, not where OpenSSL was
 * built to look for them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Certificates: those of Debian, Fedora, Alpine, SUSE. Before main, while there is one thread. */
__attribute__((constructor)) static void find_certificates(void)
{
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"};
    size_t n = 0;
    if (access("/usr/lib/ssl/certs", F_OK) == 0) return; /* OpenSSL's own folder */
    while (n < sizeof files / sizeof files[0] - 1 && access(files[n], R_OK) < 0) n++;
    (void)setenv("SSL_CERT_FILE", files[n], 0);
}

/* Libraries: libpq, libedit, modules of Lua in C, engines of OpenSSL. */

void *dlopen(const char *name, int flags)
{
    return NULL;
}

char *dlerror(void)
{
    static char text[] = "this luaserve is a static program, which cannot load libraries";
    return text;
}

/* Users and groups. 0 with *found NULL: there is no such name. */
#define LOOK_UP(file_name, next, member)                                       \
    FILE *file = fopen(file_name, "re");                                       \
    int error = file != NULL ? 0 : ENOENT;                                     \
    *found = NULL;                                                             \
    while (error == 0 && (*found == NULL || strcmp(entry->member, name) != 0)) \
        error = next(file, entry, buffer, bytes, found);                       \
    if (file != NULL) (void)fclose(file);                                      \
    if (error != 0) *found = NULL;                                             \
    return error == ENOENT ? 0 : error

int getpwnam_r(const char *name, struct passwd *entry, char *buffer, size_t bytes, struct passwd **found)
{
    LOOK_UP("/etc/passwd", fgetpwent_r, pw_name);
}

int getgrnam_r(const char *name, struct group *entry, char *buffer, size_t bytes, struct group **found)
{
    LOOK_UP("/etc/group", fgetgrent_r, gr_name);
}
