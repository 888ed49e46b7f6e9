/* stress.h - `luaserve stress`, for the program: the libraries do not contain it. */
#ifndef LS_STRESS_STRESS_H
#define LS_STRESS_STRESS_H

/* argv[0] is "stress", its options follow (`luaserve stress --help`). Returns the exit status: 0; 99: a threshold was
 * missed; 1: the run failed, with the reason on standard error. */
int ls_stress_main(int argc, char **argv);

#endif
