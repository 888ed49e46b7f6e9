/* new.c - `luaserve new`: writes a template of lua/templates/ into a new folder, and the definitions for the editor.
 *
 * The files of templates/common and of templates/NAME go to the folder; "dot_" at the beginning of a name becomes a
 * dot, and @NAME@ in a text the name of the folder. definitions/ goes to .luaserve/, which .luarc.json names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/embedded.h"
#include "cli/folder.h"
#include "cli/main.h"

#define TEMPLATES        "templates/"
#define COMMON           "common"
#define DEFINITIONS      "definitions/"
#define DEFAULT_TEMPLATE "web"

enum { TEMPLATES_MAX = 16, NAME_BYTES_MAX = 64, PATH_BYTES_MAX = 4096 };

static const char usage[] = "usage: luaserve new DIR [--template NAME]\n"
                            "\n"
                            "Makes the folder DIR with a site, its tests, a README and settings for editors. An "
                            "existing folder must be empty; .git\n"
                            "may be in it.\n"
                            "\n"
                            "  --template NAME  api   a JSON API with validation\n"
                            "                   web   pages, a form and static files (the default)\n"
                            "                   chat  a chat over WebSocket, with its page\n"
                            "                   tcp   a line protocol\n"
                            "  --help           print this text\n";

/* ---- templates ------------------------------------------------------------------------------------------------- */

/* The name of the template that a file belongs to, without a terminator; NULL: it belongs to none. */
static const char *template_of(const ls_embedded_file *file, size_t *len)
{
    if (strncmp(file->path, TEMPLATES, sizeof TEMPLATES - 1) != 0) return NULL;
    const char *name = file->path + sizeof TEMPLATES - 1;
    *len = strcspn(name, "/");
    return name;
}

static int is_of_template(const ls_embedded_file *file, const char *template_name)
{
    size_t len = 0;
    const char *name = template_of(file, &len);
    return name != NULL && strlen(template_name) == len && strncmp(name, template_name, len) == 0;
}

/* Collect the names of the templates; a NULL ends `names`. */
static void list_templates(char text[TEMPLATES_MAX][NAME_BYTES_MAX], const char *names[TEMPLATES_MAX])
{
    size_t count = 0;
    for (const ls_embedded_file *file = ls_embedded_files; file->path != NULL && count + 1 < TEMPLATES_MAX; file++) {
        size_t len = 0;
        const char *name = template_of(file, &len);
        if (name == NULL || len >= NAME_BYTES_MAX || is_of_template(file, COMMON)) continue;
        if (count > 0 && strlen(names[count - 1]) == len && strncmp(names[count - 1], name, len) == 0) continue;
        (void)snprintf(text[count], NAME_BYTES_MAX, "%.*s", (int)len, name);
        names[count] = text[count];
        count++;
    }
    names[count] = NULL;
}

static int check_template(const char *wanted)
{
    char text[TEMPLATES_MAX][NAME_BYTES_MAX];
    const char *names[TEMPLATES_MAX];
    list_templates(text, names);
    for (size_t i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], wanted) == 0) return LS_STATUS_OK;
    const char *near = ls_command_nearest(wanted, names);
    fprintf(stderr, "luaserve new: unknown template \"%s\"; the templates are", wanted);
    for (size_t i = 0; names[i] != NULL; i++) fprintf(stderr, "%s %s", i > 0 ? "," : "", names[i]);
    if (near != NULL) fprintf(stderr, "; did you mean %s?", near);
    fprintf(stderr, "\n");
    return LS_STATUS_USAGE;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static int fail(const char *what, const char *path, int err)
{
    fprintf(stderr, "luaserve new: cannot %s %s: %s\n", what, path, strerror(err));
    return LS_STATUS_FAILED;
}

/* Make the folders of `path` up to its last separator. */
static int make_parents(char *path)
{
    for (char *at = path + 1; *at != '\0'; at++) {
        if (*at != '/' && *at != '\\') continue;
        const char separator = *at;
        *at = '\0';
        const int err = ls_folder_kind(path) == LS_FOLDER_FOLDER ? 0 : ls_folder_make(path);
        if (err != 0 && err != EEXIST) return fail("make the folder", path, err);
        *at = separator;
    }
    return LS_STATUS_OK;
}

/* Write the text, with `name` for each @NAME@. */
static int write_text(FILE *to, const char *bytes, size_t len, const char *name)
{
    static const char mark[] = "@NAME@";
    const char *const end = bytes + len;
    while (bytes < end) {
        const char *at = bytes;
        while ((at = memchr(at, '@', (size_t)(end - at))) != NULL &&
               ((size_t)(end - at) < sizeof mark - 1 || memcmp(at, mark, sizeof mark - 1) != 0))
            at++;
        const char *stop = at != NULL ? at : end;
        if (fwrite(bytes, 1, (size_t)(stop - bytes), to) != (size_t)(stop - bytes)) return -1;
        if (at == NULL) return 0;
        if (fputs(name, to) < 0) return -1;
        bytes = at + sizeof mark - 1;
    }
    return 0;
}

/* Write a file to `relative` below the folder. */
static int write_file(const char *folder, const char *relative, const ls_embedded_file *file, const char *name)
{
    static const char dot[] = "dot_";
    char path[PATH_BYTES_MAX];
    const char *last = strrchr(relative, '/');
    last = last != NULL ? last + 1 : relative;
    const int is_hidden = strncmp(last, dot, sizeof dot - 1) == 0;
    const int len = snprintf(path, sizeof path, "%s/%.*s%s%s", folder, (int)(last - relative), relative,
                             is_hidden ? "." : "", is_hidden ? last + sizeof dot - 1 : last);
    if (len < 0 || (size_t)len >= sizeof path) return fail("write", relative, ENAMETOOLONG);
    const int status = make_parents(path);
    if (status != LS_STATUS_OK) return status;
    FILE *to = ls_folder_create_file(path);
    if (to == NULL) return fail("write", path, errno);
    int failed = write_text(to, file->bytes, file->len, name);
    if (fclose(to) != 0) failed = -1;
    if (failed != 0) return fail("write", path, errno);
    printf("  %s\n", path);
    return LS_STATUS_OK;
}

/* The folder does not exist, or is empty. */
static int check_folder(const char *folder)
{
    ls_folder_list list;
    const enum ls_folder_kind kind = ls_folder_kind(folder);
    int status = LS_STATUS_OK;
    if (kind == LS_FOLDER_NONE) return LS_STATUS_OK;
    if (kind == LS_FOLDER_FILE) {
        fprintf(stderr, "luaserve new: %s is a file; give the name of a new folder\n", folder);
        return LS_STATUS_FAILED;
    }
    const int err = ls_folder_read(folder, &list);
    if (err != 0) return fail("read", folder, err);
    for (size_t i = 0; i < list.count && status == LS_STATUS_OK; i++) {
        if (strcmp(list.entries[i].name, ".git") == 0) continue;
        fprintf(stderr, "luaserve new: the folder %s is not empty: it contains %s; give a new or an empty folder\n",
                folder, list.entries[i].name);
        status = LS_STATUS_FAILED;
    }
    ls_folder_list_free(&list);
    return status;
}

/* The last part of the path; "site" where it has no name, as in ".". */
static void name_of(const char *folder, char *name, size_t bytes)
{
    size_t end = strlen(folder);
    while (end > 0 && strchr("/\\", folder[end - 1]) != NULL) end--;
    size_t begin = end;
    while (begin > 0 && strchr("/\\", folder[begin - 1]) == NULL) begin--;
    (void)snprintf(name, bytes, "%.*s", (int)(end - begin), folder + begin);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) (void)snprintf(name, bytes, "site");
}

static int write_all(const char *folder, const char *template_name)
{
    char name[256];
    name_of(folder, name, sizeof name);
    for (const ls_embedded_file *file = ls_embedded_files; file->path != NULL; file++) {
        char relative[PATH_BYTES_MAX];
        if (is_of_template(file, COMMON) || is_of_template(file, template_name)) {
            (void)snprintf(relative, sizeof relative, "%s", strchr(file->path + sizeof TEMPLATES - 1, '/') + 1);
        } else if (strncmp(file->path, DEFINITIONS, sizeof DEFINITIONS - 1) == 0) {
            (void)snprintf(relative, sizeof relative, ".luaserve/%s", file->path + sizeof DEFINITIONS - 1);
        } else {
            continue;
        }
        const int status = write_file(folder, relative, file, name);
        if (status != LS_STATUS_OK) return status;
    }
    printf("\nNext:\n  cd %s\n  luaserve test\n  luaserve dev site.lua\n", folder);
    return LS_STATUS_OK;
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

int ls_command_new(int argc, char **argv)
{
    static const char *const options[] = {"--template", "--help", NULL};
    static const char option[] = "--template";
    const char *folder = NULL, *template_name = DEFAULT_TEMPLATE;
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            fputs(usage, stdout);
            return LS_STATUS_OK;
        }
        if (strcmp(argv[at], option) == 0) {
            template_name = at + 1 < argc ? argv[++at] : "";
        } else if (strncmp(argv[at], option, sizeof option - 1) == 0 && argv[at][sizeof option - 1] == '=') {
            template_name = argv[at] + sizeof option;
        } else if (argv[at][0] == '-') {
            const char *near = ls_command_nearest(argv[at], options);
            fprintf(stderr, "luaserve new: unknown option %s%s%s%s\n%s", argv[at],
                    near != NULL ? "; did you mean " : "", near != NULL ? near : "", near != NULL ? "?" : "",
                    "luaserve new --help lists the options\n");
            return LS_STATUS_USAGE;
        } else if (folder != NULL) {
            fprintf(stderr, "luaserve new: two folders given, %s and %s; give one\n", folder, argv[at]);
            return LS_STATUS_USAGE;
        } else {
            folder = argv[at];
        }
    }
    if (folder == NULL || folder[0] == '\0') {
        fprintf(stderr, "luaserve new: no folder given; usage: luaserve new DIR [--template NAME]\n");
        return LS_STATUS_USAGE;
    }
    int status = check_template(template_name);
    if (status == LS_STATUS_OK) status = check_folder(folder);
    return status == LS_STATUS_OK ? write_all(folder, template_name) : status;
}
