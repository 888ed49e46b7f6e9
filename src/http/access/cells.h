/* cells.h - numbers to which many threads add without a lock: the counters of metrics.
 *
 * A cell is a number (double) at the same place in the memory of each thread, which only this thread writes; the value is
 * the sum. Slot 0 is that of no thread: of values that are set, and of additions while a site loads. Cells come in blocks.
 * A block is given out once and never returned, so no reader needs a lock either.
 *
 * Thread: ls_cell_add that of the slot; ls_cells_open and ls_cells_close one; the others any. */
#ifndef LS_HTTP_ACCESS_CELLS_H
#define LS_HTTP_ACCESS_CELLS_H

#include <stdatomic.h>
#include <stdint.h>

enum { LS_CELLS_BLOCK_MAX = 1024, LS_CELLS_SLOTS = 2 * 1024 + 1 /* threads, as many that refuse requests, slot 0 */ };

typedef struct ls_cells ls_cells;
typedef _Atomic uint64_t ls_cell; /* the bits of a double */

int ls_cells_open(ls_cells **out); /* LS_OK or LS_ENOMEM */
void ls_cells_close(ls_cells *cells);

/* The number of the first of `count` new cells, 1 to LS_CELLS_BLOCK_MAX; 0: there are too many. */
uint32_t ls_cells_give(ls_cells *cells, uint32_t count);
uint32_t ls_cells_given(const ls_cells *cells); /* all numbers are below it */

/* The cells from this number on to the end of its block, in a slot. NULL: out of memory. */
ls_cell *ls_cells_of(ls_cells *cells, unsigned slot, uint32_t first);
void ls_cell_add(ls_cell *cell, double n);
void ls_cell_add_shared(ls_cell *cell, double n); /* slot 0 */
void ls_cell_set(ls_cell *cell, double value);    /* slot 0 */

/* The values of `count` cells of a block. */
void ls_cells_read(const ls_cells *cells, uint32_t first, unsigned count, double *values);

#endif
