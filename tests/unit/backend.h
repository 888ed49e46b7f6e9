/* backend.h - selects the back end of the tests' ports: the one in LS_TEST_BACKEND, else the default. If the system
 * does not support it, the program exits with status 77, which CMakeLists.txt declares to ctest as skipped. */
#ifndef TESTS_UNIT_BACKEND_H
#define TESTS_UNIT_BACKEND_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/port.h"

static inline const char *test_backend(void)
{
    const char *name = getenv("LS_TEST_BACKEND");
    const ls_port_options options = {.sockets_max = 1, .backend = name};
    ls_port *port;
    if (name == NULL) return NULL;
    const int err = ls_port_open(&options, &port);
    if (err < 0) {
        fprintf(stderr, "back end %s: %s\n", name, ls_err_text(err));
        exit(1);
    }
    const char *given = ls_port_backend(port);
    ls_port_close(port);
    if (strcmp(name, given) != 0) exit(77);
    return name;
}

#endif
