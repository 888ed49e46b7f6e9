/* port_base.c - what a back end opens and closes with its port: see common_internal.h. */

#include "port/common_internal.h"

void ls_port_base_open(ls_port_base *base)
{
    ls_mutex_open(&base->mutex);
    ls_mutex_open(&base->heap_mutex);
    base->last = &base->first;
    base->timer_ns = UINT64_MAX;
    ls_heap_open(&base->heap);
}

void ls_port_base_close(ls_port_base *base)
{
    ls_heap_close(&base->heap);
    ls_mutex_close(&base->heap_mutex);
    ls_mutex_close(&base->mutex);
}

void ls_queue_free(ls_port_base *base)
{
    for (ls_op *op; (op = ls_queue_pop(base)) != NULL;)
        if (op->kind == KIND_KEY) free(op);
}
