/* few_descriptors.h - a process that may open nothing more, for tests of what happens then: the header that picks. */
#ifndef TESTS_UNIT_PORT_FEW_DESCRIPTORS_H
#define TESTS_UNIT_PORT_FEW_DESCRIPTORS_H

#ifdef _WIN32
#include "port/few_descriptors_win32.h"
#else
#include "port/few_descriptors_posix.h"
#endif

#endif
