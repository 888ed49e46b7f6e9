/* list.h - an intrusive, circular, doubly linked list. The node is embedded in its element; no allocation, no
 * ownership. The head of an empty list points at itself, as does a node that is on no list. */
#ifndef LS_BASE_LIST_H
#define LS_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ls_node {
    struct ls_node *next, *prev;
} ls_node;

#define LS_CONTAINER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

#define LS_LIST_INIT(head) \
    {                      \
        &(head), &(head)   \
    } /* of the ls_node `head`: an empty list */

/* The element of the node; NULL for the head. */
#define LS_LIST_AT(node, head, type, member) ((node) == (head) ? NULL : LS_CONTAINER(node, type, member))
/* A loop over the elements, from the first one: `type *at`. */
#define LS_LIST_EACH(type, at, head, member)                                  \
    for (type *at = LS_LIST_AT((head)->next, head, type, member); at != NULL; \
         at = LS_LIST_AT(at->member.next, head, type, member))
/* The same; the loop may drop the element. */
#define LS_LIST_EACH_DROP(type, at, head, member)                             \
    for (type *at = LS_LIST_AT((head)->next, head, type, member), *at##_next; \
         at != NULL && (at##_next = LS_LIST_AT(at->member.next, head, type, member), true); at = at##_next)

/* A loop that takes each element out of the list, from the first one on, until the list is empty. */
#define LS_LIST_TAKE(type, at, head, member) \
    for (type * at;                          \
         !ls_list_empty(head) && (at = LS_CONTAINER((head)->next, type, member), ls_list_remove(&at->member), true);)

static inline void ls_node_init(ls_node *node)
{
    node->next = node->prev = node;
}

static inline bool ls_list_empty(const ls_node *head)
{
    return head->next == head;
}

static inline void ls_list_push(ls_node *head, ls_node *node) /* at the tail */
{
    node->next = head;
    node->prev = head->prev;
    head->prev->next = node;
    head->prev = node;
}

/* Move all nodes of `from` to `to`, which must be empty; `from` is empty afterwards. */
static inline void ls_list_move(ls_node *to, ls_node *from)
{
    ls_node_init(to);
    if (ls_list_empty(from)) return;
    *to = *from;
    to->next->prev = to->prev->next = to;
    ls_node_init(from);
}

static inline void ls_list_remove(ls_node *node) /* no effect on a node that is on no list */
{
    node->next->prev = node->prev;
    node->prev->next = node->next;
    ls_node_init(node);
}

#endif
