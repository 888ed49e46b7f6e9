/* library_posix.c - see library.h. */
#include "base/os/library.h"

#include <dlfcn.h>

const char *ls_library_load(const char *name, const char *const *names, void **to, size_t count)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return dlerror();
    for (size_t n = 0; n < count; n++)
        if ((to[n] = dlsym(library, names[n])) == NULL) return dlerror();
    return NULL;
}
