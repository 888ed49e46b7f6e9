/* system.h - what the system of this machine can be brought to, for tests that need it: the header that picks. */
#ifndef TESTS_UNIT_SYSTEM_H
#define TESTS_UNIT_SYSTEM_H

#ifdef _WIN32
#include "system_win32.h"
#else
#include "system_posix.h"
#endif

#endif
