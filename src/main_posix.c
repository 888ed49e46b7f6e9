/* main_posix.c - where the program begins. */
#include "main.h"

int main(int argc, char **argv)
{
    return ls_command_line(argc, argv);
}
