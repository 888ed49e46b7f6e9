/* test_list.c - the intrusive list. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/list.h"

typedef struct item {
    int number;
    ls_node node;
} item;

TEST(items_leave_in_the_order_of_insertion)
{
    ls_node head;
    item items[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
    ls_node_init(&head);
    assert_true(ls_list_empty(&head));
    for (int i = 0; i < 3; i++) ls_list_push(&head, &items[i].node);
    for (int i = 0; i < 3; i++) {
        assert_false(ls_list_empty(&head));
        item *const first = LS_CONTAINER(head.next, item, node);
        assert_int_equal(first->number, i);
        ls_list_remove(&first->node);
    }
    assert_true(ls_list_empty(&head));
}

TEST(removing_twice_is_harmless)
{
    ls_node head, a, b;
    ls_node_init(&head);
    ls_list_push(&head, &a);
    ls_list_push(&head, &b);
    ls_list_remove(&a);
    ls_list_remove(&a);
    assert_ptr_equal(head.next, &b);
    assert_ptr_equal(head.prev, &b);
    assert_true(ls_list_empty(&a));
}

TEST(moving_takes_all_in_order)
{
    ls_node from, to, nodes[3];
    for (int count = 0; count <= 3; count++) {
        ls_node_init(&from);
        for (int i = 0; i < count; i++) ls_list_push(&from, &nodes[i]);
        ls_list_move(&to, &from);
        assert_true(ls_list_empty(&from));
        for (int i = 0; i < count; i++) {
            assert_ptr_equal(to.next, &nodes[i]);
            ls_list_remove(&nodes[i]);
        }
        assert_true(ls_list_empty(&to));
        assert_ptr_equal(to.prev, &to);
    }
}
