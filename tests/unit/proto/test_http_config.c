/* test_http_config.c - the documented defaults. */
#include "proto/http_config.h"

#include "support.h"

static void defaults(void **state)
{
    ls_http_config config;
    (void)state;
    memset(&config, 0xa5, sizeof config);
    ls_http_config_defaults(&config);
    assert_int_equal(config.head.head_bytes_max, 16384);
    assert_int_equal(config.head.target_bytes_max, 8192);
    assert_int_equal(config.head.fields_max, 100);
    assert_true(config.body_bytes_max == 8388608);
    assert_int_equal(config.head_ms_max, 10000);
    assert_int_equal(config.body_grace_ms, 10000);
    assert_int_equal(config.send_rate_min, 256);
    assert_int_equal(config.body_rate_min, 256);
    assert_int_equal(config.idle_ms_max, 75000);
    assert_int_equal(config.send_stall_ms_max, 30000);
    assert_int_equal(config.unread_bytes_max, 65536);
    assert_int_equal(config.linger_ms_max, 2000);
    assert_int_equal(config.write_bytes_high, 65536);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
