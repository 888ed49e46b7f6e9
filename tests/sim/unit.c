/* unit.c - makes a unit test run in the simulated world: linked into it, with the files of port/sim. The variable
 * LUASERVE_SIM_SEED is the seed (1). */
#include <stdlib.h>

#include "port/sim/sim.h"

__attribute__((constructor)) static void begin(void)
{
    const char *seed = getenv("LUASERVE_SIM_SEED");
    ls_sim_begin(seed != NULL ? strtoull(seed, NULL, 10) : 1);
}
