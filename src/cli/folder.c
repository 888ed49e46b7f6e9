/* folder.c - the list of folder.h. */
#include "cli/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ls_folder_list_add(ls_folder_list *list, const char *name, int is_folder)
{
    struct ls_folder_entry *grown = realloc(list->entries, (list->count + 1) * sizeof *grown);
    if (grown == NULL) return ENOMEM;
    list->entries = grown;
    char *copy = malloc(strlen(name) + 1);
    if (copy == NULL) return ENOMEM;
    grown[list->count].name = strcpy(copy, name);
    grown[list->count].is_folder = is_folder;
    list->count++;
    return 0;
}

void ls_folder_list_free(ls_folder_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->entries[i].name);
    free(list->entries);
    *list = (ls_folder_list){0, NULL};
}
