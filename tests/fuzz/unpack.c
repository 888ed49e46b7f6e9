/* unpack.c - linked with replay.c: writes the inputs of a corpus to files 1, 2, ... in this folder, from which libFuzzer
 * reads them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int count;
    char name[16];
    (void)snprintf(name, sizeof name, "%d", ++count);
    FILE *file = fopen(name, "wb");
    if (file == NULL || fwrite(bytes, 1, len, file) != len || fclose(file) != 0) {
        perror(name);
        exit(1);
    }
    return 0;
}
