/* sim_disk.h - what sim_file.c, the calls, and sim_disk.c, the disk, have in common. */
#ifndef LS_PORT_SIM_DISK_H
#define LS_PORT_SIM_DISK_H

#include "port/sim/sim.h"

enum { LS_SIM_PATH_BYTES = 160, LS_SIM_MAPPED_BYTES = 512 << 10 };
enum { LS_SIM_FILE_BYTES = 8 << 20, LS_SIM_LOG_BYTES = 2 * LS_SIM_FILE_BYTES };

typedef struct ls_sim_inode { /* a file or a folder, in the image */
    bool is_used, is_folder;
    unsigned mode, opens;
    uint64_t modified_ns, named; /* named: the number of the change of names that gave it its last one */
    uint64_t size, kept_size;    /* of what calls see; of what is on the device */
    uint64_t log_first, log_end; /* offsets */
    uint64_t mapped_size;        /* zeros after it */
    char now[LS_SIM_FILE_BYTES], kept[LS_SIM_FILE_BYTES]; /* zeros after their size */
    _Alignas(8) char log[LS_SIM_LOG_BYTES];               /* the changes between the two */
    _Alignas(4096) char mapped[LS_SIM_MAPPED_BYTES];      /* of mmap; not part of the content, and lost in a crash */
} ls_sim_inode;

/* Each call begins with it, before it looks at the disk: others may get the turn. */
void ls_sim_disk_call(bool changes);

int ls_sim_disk_number(const ls_sim_inode *f);
ls_sim_inode *ls_sim_disk_find(const char *path); /* NULL: none */
bool ls_sim_disk_has_name(const ls_sim_inode *f);
bool ls_sim_disk_is_full(void);
ls_sim_inode *ls_sim_disk_new(bool is_folder, unsigned mode);
void ls_sim_disk_name(const char *path, ls_sim_inode *f);  /* NULL: remove the name */
void ls_sim_disk_rename(const char *from, const char *to); /* a file */
int ls_sim_disk_write(ls_sim_inode *f, const void *bytes, uint64_t at, uint64_t len);
int ls_sim_disk_truncate(ls_sim_inode *f, uint64_t size); /* -1: errno */
void ls_sim_disk_sync(ls_sim_inode *f);
bool ls_sim_disk_maps(const void *at);

#endif
