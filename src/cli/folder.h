/* folder.h - files and folders for the commands `luaserve test` and `luaserve new`. Names are UTF-8. folder_posix.c,
 * folder_win32.c. Any thread. */
#ifndef LS_CLI_FOLDER_H
#define LS_CLI_FOLDER_H

#include <stddef.h>
#include <stdio.h>

enum ls_folder_kind { LS_FOLDER_NONE, LS_FOLDER_FILE, LS_FOLDER_FOLDER };

/* What the path names; links are followed. */
enum ls_folder_kind ls_folder_kind(const char *path);

typedef struct ls_folder_list {
    size_t count;
    struct ls_folder_entry {
        char *name;
        int is_folder;
    } * entries;
} ls_folder_list;

/* The entries of a folder without "." and "..", in any order; the caller frees them with ls_folder_list_free. A link
 * to a folder is not listed as one, so a search ends. 0, or an errno value. */
int ls_folder_read(const char *path, ls_folder_list *out);
void ls_folder_list_free(ls_folder_list *list);

/* Append a copy of the name. 0, or ENOMEM. For the implementations. */
int ls_folder_list_add(ls_folder_list *list, const char *name, int is_folder);

int ls_folder_is_absolute(const char *path);

/* Make a folder. 0, or an errno value; EEXIST: the name exists. */
int ls_folder_make(const char *path);

/* Open a new file for writing, in binary. NULL: errno is set; EEXIST: the name exists. */
FILE *ls_folder_create_file(const char *path);

#endif
