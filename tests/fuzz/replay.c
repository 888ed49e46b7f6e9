/* replay.c - runs a fuzz target over the files of a directory, so that every build tests the inputs found by fuzzing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* The contents of the file in memory of exactly its size, or NULL. */
static uint8_t *slurp(const char *path, size_t *len)
{
    uint8_t *bytes = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        rewind(file);
        bytes = size >= 0 ? malloc(size > 0 ? (size_t)size : 1) : NULL;
        if (bytes != NULL) *len = fread(bytes, 1, (size_t)size, file);
    }
    (void)fclose(file);
    return bytes;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **entries;
        const int n = scandir(argv[i], &entries, NULL, alphasort);
        if (n < 0) {
            perror(argv[i]);
            return 1;
        }
        for (int k = 0; k < n; k++) {
            char path[4096];
            size_t len = 0;
            (void)snprintf(path, sizeof path, "%s/%s", argv[i], entries[k]->d_name);
            uint8_t *bytes = entries[k]->d_name[0] != '.' ? slurp(path, &len) : NULL;
            if (bytes != NULL) {
                (void)LLVMFuzzerTestOneInput(bytes, len);
                count++;
            }
            free(bytes);
            free(entries[k]);
        }
        free(entries);
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1; /* an empty corpus is a failure */
}
