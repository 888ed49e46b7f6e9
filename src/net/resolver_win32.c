/* resolver_win32.c - resolver.h over the system's own resolver: GetAddrInfoExW with an OVERLAPPED, which asks on threads of
 * the system (Windows 8 and later). When it has an answer it calls us on one of these, and the packet of an operation takes it
 * to the actor.
 *
 * A lookup that was dropped is cancelled, and its memory is the system's until it has called, however late that is:
 *
 *     ASKED -> POSTED -> OVER        completed() posts, the actor takes the packet
 *     ASKED -> OVER                  after ls_resolver_stop nothing is posted any more
 *
 * So it is freed by whoever comes last: the drop, the packet, the late call, or the close of the resolver for those whose packets
 * were left in the port. The resolver itself goes with the last of those that the system still has. */
#include "net/resolver.h"

#include "net/sockaddr_win32.h"

#include <stdlib.h>
#include <string.h>

#include "base/err_win32.h"
#include "base/list.h"
#include "port/winsock_win32.h"

/* Microsoft's documentation has it since Windows 8; mingw-w64's header has not. */
WINSOCK_API_LINKAGE INT WSAAPI GetAddrInfoExCancel(LPHANDLE handle);

enum { NAME_CHARS_MAX = 255 }; /* RFC 1035 2.3.4 */

enum lookup_state { ASKED, POSTED, OVER };

struct ls_resolver {
    ls_port *port;
    ls_actor *actor;
    bool system_only; /* no name servers were named: those cannot be chosen here */
    SRWLOCK lock;     /* guards what follows, and the state and `dropped` of each lookup */
    bool stopped;
    unsigned held; /* by its owner, and by each lookup that is ASKED */
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

/* ---- ends --------------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static void lookup_free(win_lookup *l)
{
    ls_list_remove(&l->node);
    if (l->found != NULL) FreeAddrInfoExW(l->found);
    free(l);
}

/* Give up the lock, and with it one hold. */
static void unlock_and_let_go(ls_resolver *r)
{
    const bool last = --r->held == 0;
    ReleaseSRWLockExclusive(&r->lock);
    if (last) free(r);
}

static void take_addresses(win_lookup *l, int error)
{
    l->base.err = ls_err_from_win32((uint32_t)error);
    /* Through void: the header's own name of the next one's type is misspelt in mingw-w64 10. */
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
static void told(ls_thread_ctx *ctx, ls_op *op)
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
    (void)bytes;
    AcquireSRWLockExclusive(&r->lock);
    l->state = r->stopped ? OVER : POSTED;
    if (!r->stopped)
        (void)ls_port_post(r->port, &l->op, NULL, (int64_t)error); /* with an op it cannot fail */
    else if (l->dropped)
        lookup_free(l);
    unlock_and_let_go(r);
}

/* ---- lookups ------------------------------------------------------------------------------------------------------ */

/* Known without asking (RFC 6761 6.3), wrong, or not to be had here. */
static bool answered_at_once(const ls_resolver *r, win_lookup *l, const char *name)
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

int ls_resolver_ask(ls_thread_ctx *ctx, ls_resolver *r, const char *name, uint16_t port, ls_lookup_fn *done,
                    void *user, ls_lookup **out)
{
    const ADDRINFOEXW hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    (void)ctx;
    win_lookup *l = calloc(1, sizeof *l);
    if (l == NULL) return LS_ENOMEM;
    l->base.done = done;
    l->base.user = user;
    l->resolver = r;
    l->port = port;
    l->op.done = told;
    l->op.actor = r->actor;
    l->state = OVER;
    ls_node_init(&l->node);
    *out = &l->base;
    if (answered_at_once(r, l, name)) return LS_DONE;

    AcquireSRWLockExclusive(&r->lock);
    l->state = ASKED;
    r->held++;
    ls_list_push(&r->lookups, &l->node);
    ReleaseSRWLockExclusive(&r->lock);
    const int error =
        GetAddrInfoExW(l->name, NULL, NS_DNS, NULL, &hints, &l->found, NULL, &l->overlapped, completed, &l->cancel);
    if (error == WSA_IO_PENDING) return LS_PENDING;
    /* At once, found or not: completed is not called. */
    AcquireSRWLockExclusive(&r->lock);
    l->state = OVER;
    unlock_and_let_go(r);
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
    if (l->state == ASKED)
        cancel = l->cancel;
    else if (l->state == OVER || r->stopped)
        lookup_free(l);
    ReleaseSRWLockExclusive(&r->lock);
    /* Not under the lock, which completed takes. What has just completed is not found any more. */
    if (cancel != NULL) (void)GetAddrInfoExCancel(&cancel);
}

/* ---- open and close ------------------------------------------------------------------------------------------------- */

int ls_resolver_open(ls_port *port, ls_actor *actor, const char *servers, ls_resolver **out)
{
    const int err = ls_winsock_start();
    if (err < 0) return err;
    ls_resolver *r = calloc(1, sizeof *r);
    if (r == NULL) return LS_ENOMEM;
    r->port = port;
    r->actor = actor;
    r->system_only = servers[0] == '\0';
    r->held = 1;
    InitializeSRWLock(&r->lock);
    ls_node_init(&r->lookups);
    *out = r;
    return LS_OK;
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
        if (l->state != ASKED) lookup_free(l); /* its packet was left in the port */
    }
    unlock_and_let_go(r);
}
