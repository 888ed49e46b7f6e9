/* resolver_win32.c - resolver.h over the resolver of Windows: GetAddrInfoExW with an OVERLAPPED, which runs the query
 * on threads of the system (Windows 8 and later). The system calls completed() on one of them, and the packet of an
 * operation reports the result to the actor.
 *
 * A dropped lookup is cancelled, but the system uses its memory until it has called completed(), however late:
 *
 *     QUERYING -> POSTED -> OVER     completed() posts, the actor takes the packet
 *     QUERYING -> OVER               after ls_resolver_stop nothing is posted
 *
 * So the last of these frees it: the drop, the packet, or a late completed(); the close of the resolver frees those
 * whose packets were left in the port. The resolver itself is freed with the last lookup that the system still
 * uses. */
#include "net/names/resolver.h"

#include "net/sock/sockaddr_win32.h"

#include <stdlib.h>
#include <string.h>

#include "base/err_win32.h"
#include "base/list.h"
#include "port/winsock_win32.h"

/* Documented by Microsoft since Windows 8, but missing from the header of mingw-w64. */
WINSOCK_API_LINKAGE INT WSAAPI GetAddrInfoExCancel(LPHANDLE handle);

enum { NAME_CHARS_MAX = 255 }; /* RFC 1035 2.3.4 */

enum lookup_state { QUERYING, POSTED, OVER };

struct ls_resolver {
    ls_port *port;
    ls_actor *actor;
    bool system_only; /* no name servers were given: Windows cannot choose them */
    SRWLOCK lock;     /* guards the fields below, and the state and `dropped` of each lookup */
    bool stopped;
    bool ending;   /* of a live close: nothing more is posted, but packets may be on their way */
    unsigned refs; /* the owner, and each lookup that is QUERYING */
    ls_node lookups;
};

typedef struct win_lookup {
    ls_lookup base; /* first */
    OVERLAPPED overlapped;
    ls_op op;
    ls_resolver *resolver;
    ls_node node; /* resolver->lookups */
    ADDRINFOEXW *found;
    HANDLE cancel; /* NULL: it cannot be cancelled (Wine 8) */
    uint16_t port;
    enum lookup_state state;
    bool dropped;
    wchar_t name[NAME_CHARS_MAX + 1];
} win_lookup;

/* ---- ends ------------------------------------------------------------------------------------------------------- */

/* The caller holds the lock. */
static void lookup_free(win_lookup *l)
{
    ls_list_remove(&l->node);
    if (l->found != NULL) FreeAddrInfoExW(l->found);
    free(l);
}

/* Release the lock and drop one reference. */
static void unlock_and_unref(ls_resolver *r)
{
    const bool last = --r->refs == 0;
    ReleaseSRWLockExclusive(&r->lock);
    if (last) free(r);
}

static void take_addresses(win_lookup *l, int error)
{
    l->base.err = ls_err_from_win32((uint32_t)error);
    /* Cast through void: the header of mingw-w64 10 misspells the type of ai_next. */
    for (const ADDRINFOEXW *at = error == 0 ? l->found : NULL; at != NULL && l->base.count < LS_LOOKUP_ADDRS_MAX;
         at = (const void *)at->ai_next) {
        ls_sockaddr sa = {.len = (uint32_t)at->ai_addrlen};
        if (at->ai_addr == NULL || at->ai_addrlen > sizeof sa.bytes) continue;
        memcpy(sa.bytes, at->ai_addr, at->ai_addrlen);
        ls_addr *addr = &l->base.addrs[l->base.count];
        ls_addr_of(&sa, addr);
        addr->port = l->port;
        if (addr->family != LS_ADDR_NONE) l->base.count++;
    }
    if (l->base.err == LS_OK && l->base.count == 0) l->base.err = LS_ENOENT;
}

/* Inside the actor. */
static void report(ls_thread_ctx *ctx, ls_op *op)
{
    win_lookup *l = LS_CONTAINER(op, win_lookup, op);
    ls_resolver *r = l->resolver;
    AcquireSRWLockExclusive(&r->lock);
    const bool dropped = l->dropped;
    l->state = OVER;
    if (dropped) lookup_free(l);
    ReleaseSRWLockExclusive(&r->lock);
    if (dropped) return;
    take_addresses(l, (int)atomic_load_explicit(&op->result, memory_order_relaxed));
    l->base.done(ctx, &l->base);
}

/* On a thread of the system. */
static void CALLBACK completed(DWORD error, DWORD bytes, OVERLAPPED *overlapped)
{
    win_lookup *l = LS_CONTAINER(overlapped, win_lookup, overlapped);
    ls_resolver *r = l->resolver;
    AcquireSRWLockExclusive(&r->lock);
    const bool post = !r->stopped && !r->ending;
    l->state = post ? POSTED : OVER;
    if (post)
        ls_port_post(r->port, &l->op, (int64_t)error); /* cannot fail with an op */
    else if (l->dropped)
        lookup_free(l);
    unlock_and_unref(r);
}

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

/* Decide a lookup without a query: "localhost" (RFC 6761 6.3), an invalid name, or unsupported name servers. */
static bool decide_locally(const ls_resolver *r, win_lookup *l, const char *name)
{
    if (strcmp(name, "localhost") == 0) {
        l->base.count = 2;
        (void)ls_addr_parse("127.0.0.1", l->port, &l->base.addrs[0]);
        (void)ls_addr_parse("::1", l->port, &l->base.addrs[1]);
        return true;
    }
    if (!r->system_only) {
        l->base.err = LS_ENOTSUP;
        return true;
    }
    if (name[0] != '\0' &&
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, name, -1, l->name, NAME_CHARS_MAX + 1) > 0)
        return false;
    l->base.err = LS_EINVAL;
    return true;
}

int ls_resolver_lookup(ls_thread_ctx *ctx, ls_resolver *r, const char *name, uint16_t port, ls_lookup_fn *done,
                       void *user, ls_lookup **out)
{
    const ADDRINFOEXW hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    win_lookup *l = calloc(1, sizeof *l);
    if (l == NULL) return LS_ENOMEM;
    l->base.done = done;
    l->base.user = user;
    l->resolver = r;
    l->port = port;
    l->op.done = report;
    l->op.actor = r->actor;
    l->state = OVER;
    ls_node_init(&l->node);
    *out = &l->base;
    if (decide_locally(r, l, name)) return LS_DONE;

    AcquireSRWLockExclusive(&r->lock);
    l->state = QUERYING;
    r->refs++;
    ls_list_push(&r->lookups, &l->node);
    ReleaseSRWLockExclusive(&r->lock);
    const int error =
        GetAddrInfoExW(l->name, NULL, NS_DNS, NULL, &hints, &l->found, NULL, &l->overlapped, completed, &l->cancel);
    if (error == WSA_IO_PENDING) return LS_PENDING;
    /* Complete immediately, found or not: the system does not call completed. */
    AcquireSRWLockExclusive(&r->lock);
    l->state = OVER;
    unlock_and_unref(r);
    take_addresses(l, error);
    return LS_DONE;
}

void ls_lookup_drop(ls_lookup *lookup)
{
    win_lookup *l = (win_lookup *)(void *)lookup;
    ls_resolver *r = l->resolver;
    HANDLE cancel = NULL;
    AcquireSRWLockExclusive(&r->lock);
    l->dropped = true;
    if (l->state == QUERYING)
        cancel = l->cancel;
    else if (l->state == OVER || r->stopped)
        lookup_free(l);
    ReleaseSRWLockExclusive(&r->lock);
    /* Not under the lock, which completed takes. A lookup that has just completed is not found by the cancel. */
    if (cancel != NULL) (void)GetAddrInfoExCancel(&cancel);
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

int ls_resolver_open(ls_port *port, ls_polls *polls, ls_actor *actor, const char *servers, ls_resolver **out)
{
    const int err = ls_winsock_start();
    if (err < 0) return err;
    ls_resolver *r = calloc(1, sizeof *r);
    if (r == NULL) return LS_ENOMEM;
    r->port = port;
    r->actor = actor;
    r->system_only = servers[0] == '\0';
    r->refs = 1;
    InitializeSRWLock(&r->lock);
    ls_node_init(&r->lookups);
    *out = r;
    return LS_OK;
}

bool ls_resolver_end(ls_thread_ctx *ctx, ls_resolver *r)
{
    bool posted = false;
    AcquireSRWLockExclusive(&r->lock);
    r->ending = true;
    for (ls_node *node = r->lookups.next; node != &r->lookups; node = node->next)
        posted |= LS_CONTAINER(node, win_lookup, node)->state == POSTED;
    if (posted)
        ReleaseSRWLockExclusive(&r->lock);
    else
        unlock_and_unref(r); /* a query that the system still runs frees it */
    return !posted;
}

void ls_resolver_stop(ls_resolver *r)
{
    AcquireSRWLockExclusive(&r->lock);
    r->stopped = true;
    ReleaseSRWLockExclusive(&r->lock);
}

void ls_resolver_close(ls_resolver *r)
{
    AcquireSRWLockExclusive(&r->lock);
    r->stopped = true;
    for (ls_node *node = r->lookups.next, *next; node != &r->lookups; node = next) {
        win_lookup *l = LS_CONTAINER(node, win_lookup, node);
        next = node->next;
        if (l->state != QUERYING) lookup_free(l); /* its packet was left in the port */
    }
    unlock_and_unref(r);
}
