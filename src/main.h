/* main.h - the command line (main.c), as main_posix.c or main_win32.c calls it. */
#ifndef LS_MAIN_H
#define LS_MAIN_H

int ls_command_line(int argc, char **argv); /* UTF-8; returns the exit status */

#endif
