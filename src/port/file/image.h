/* image.h - the files inside a packed program (`luaserve pack`): a ZIP archive after the program, in the same file, whose
 * entries are stored without compression, so that a range of the program is a range of the file.
 *
 *     | program ... slot ... | local head, bytes | local head, bytes | ... | directory, its end |
 *                     |______________________________________________________^
 *
 * The slot is a place in the read-only data of every luaserve, 0 in one that is not packed: `luaserve pack` finds it by
 * its mark and writes where the directory begins, how long the file is, and a checksum of all other bytes. So a plain
 * program does not open its own file, and a packed one that was truncated or changed does not start.
 *
 * The files have the paths that they would have beside the program: in /opt/app, "views/page.html" is
 * /opt/views/page.html. The functions of file.h and shared_file.h that read look inside first, then on the disk; those
 * that write refuse a path that is inside (LS_EACCES). A folder of the overlay comes before both.
 *
 * The image is that of the process. ls_image_open and ls_image_overlay are called before other threads start; the
 * others by any thread. */
#ifndef LS_PORT_IMAGE_H
#define LS_PORT_IMAGE_H

#include "base/io/path.h"
#include "port/file/file.h"

/* The form of an archive entry's extra field, little-endian: the tag (8 bytes), the place of its bytes in the file (8),
 * flags (1): 1, `luaserve pack` has made it as the compressed form of another entry; 2, the entry has such forms. */
enum { LS_IMAGE_EXTRA_ID = 0x736c, LS_IMAGE_EXTRA_BYTES = 17, LS_IMAGE_MADE = 1, LS_IMAGE_CODED = 2 };

/* The slot: the mark, then four little-endian numbers of 8 bytes: the place of the slot and of the directory in the file,
 * the length of the file, the checksum. */
enum { LS_IMAGE_MARK_BYTES = 32, LS_IMAGE_SLOT_BYTES = 64 };
const char *ls_image_mark(char out[LS_IMAGE_MARK_BYTES]);

/* The checksum of `len` bytes after those with the checksum `sum`; 0 at the beginning. The parts of a file that are
 * added one after the other, but for the last one, are as long as LS_IMAGE_SUM_PART. It finds every change of 8 bytes,
 * and is no protection against an attacker. */
enum { LS_IMAGE_SUM_PART = 1 << 16 };
uint64_t ls_image_sum(uint64_t sum, const void *bytes, size_t len);

/* Open the image of this program, whose file is at the absolute path `program`. 1: it is packed; 0: it is not; an error,
 * with the reason in *why: LS_EPROTO: it was truncated or changed; as those of file.h. */
int ls_image_open(const char *program, const char **why);

/* The path of the site, "DIRECTORY OF THE PROGRAM/site.lua". NULL: this program is not packed. */
const char *ls_image_site(void);

/* Files below this folder come before those inside. The text stays the caller's. LS_OK, or why it cannot be used. */
int ls_image_overlay(const char *folder);

typedef struct ls_image_file {
    const char *name; /* below the directory of the program; `name_len` bytes */
    size_t name_len;
    uint64_t at, bytes, tag;
    unsigned flags; /* LS_IMAGE_MADE, LS_IMAGE_CODED */
} ls_image_file;

/* File n in the order of names. NULL: there are fewer. */
const ls_image_file *ls_image_file_at(size_t n);

/* Where the file of a path is. */
typedef struct ls_image_found {
    enum { LS_IMAGE_DISK, LS_IMAGE_FILE, LS_IMAGE_FOLDER } place;
    const char *path;                 /* on the disk: the path given, or that in the overlay */
    const ls_image_file *file;        /* LS_IMAGE_FILE */
    char room[2 * LS_PATH_BYTES + 2]; /* of `path`, in the overlay */
} ls_image_found;
void ls_image_find(const char *path, ls_image_found *out);

/* Whether a file or a folder with this path is inside, and the overlay has none. */
bool ls_image_has(const char *path);

/* Whether a file with this path is inside or in the overlay. */
bool ls_image_has_file(const char *path);

void ls_image_info(const ls_image_file *file, ls_file_info *info); /* NULL: of a folder inside */

/* Read len bytes of the program's file. As ls_file_read. */
ls_fd ls_image_fd(void);
const char *ls_image_overlay_folder(
    void); /* NULL: none. Then what is inside stays the same as long as the process runs */

#endif
