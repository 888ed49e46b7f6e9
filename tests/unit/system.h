/* system.h - brings the system into the states that tests need; the header that selects. */
#ifndef TESTS_UNIT_SYSTEM_H
#define TESTS_UNIT_SYSTEM_H

#ifdef _WIN32
#include "system_win32.h"
#else
#include "system_posix.h"
#endif

#endif
