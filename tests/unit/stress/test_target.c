/* test_target.c - the parts of URLs, and invalid URLs. */
#include "stress/target.h"

#include "support.h"

static ls_stress_target good(const char *url)
{
    ls_stress_target target;
    char why[256] = "";
    if (ls_stress_target_parse(url, &target, why, sizeof why) < 0) fail_msg("%s", why);
    return target;
}

static void is_refused(const char *url, int err, const char *reason)
{
    ls_stress_target target;
    char why[256] = "";
    assert_int_equal(ls_stress_target_parse(url, &target, why, sizeof why), err);
    if (strstr(why, reason) == NULL || strstr(why, url) == NULL) fail_msg("%s: %s", url, why);
}

static void valid_urls_are_split(void **state)
{
    char text[300];
    (void)state;
    ls_stress_target t = good("http://example.org");
    assert_int_equal(t.kind, LS_STRESS_TARGET_HTTP);
    assert_string_equal(t.host, "example.org");
    assert_int_equal(t.port, 80);
    assert_string_equal(t.path, "/");
    assert_string_equal(ls_stress_target_authority(&t, text, sizeof text), "example.org");
    t = good("http://127.0.0.1:8080/a/b?c=d:e@f");
    assert_int_equal(t.port, 8080);
    assert_string_equal(t.path, "/a/b?c=d:e@f");
    assert_string_equal(ls_stress_target_authority(&t, text, sizeof text), "127.0.0.1:8080");
    t = good("http://[::1]:81/");
    assert_string_equal(t.host, "::1");
    assert_string_equal(ls_stress_target_authority(&t, text, sizeof text), "[::1]:81");
    t = good("http://[fe80::1]/");
    assert_int_equal(t.port, 80);
    assert_string_equal(ls_stress_target_authority(&t, text, sizeof text), "[fe80::1]");
    assert_false(t.tls);
    t = good("https://example.org");
    assert_int_equal(t.kind, LS_STRESS_TARGET_HTTP);
    assert_true(t.tls);
    assert_int_equal(t.port, 443);
    assert_string_equal(ls_stress_target_authority(&t, text, sizeof text), "example.org");
    t = good("https://[::1]:8443/a");
    assert_int_equal(t.port, 8443);
    assert_string_equal(t.path, "/a");
    t = good("ws://h/chat?a=b");
    assert_int_equal(t.kind, LS_STRESS_TARGET_WS);
    assert_int_equal(t.port, 80);
    assert_false(t.tls);
    assert_string_equal(t.path, "/chat?a=b");
    t = good("wss://[::1]");
    assert_int_equal(t.kind, LS_STRESS_TARGET_WS);
    assert_int_equal(t.port, 443);
    assert_true(t.tls);
    assert_string_equal(t.path, "/");
    t = good("tcp://h:65535");
    assert_int_equal(t.kind, LS_STRESS_TARGET_TCP);
    assert_int_equal(t.port, 65535);
    assert_int_equal(good("udp://h:1/").kind, LS_STRESS_TARGET_UDP);
    t = good("unix:/run/a.sock");
    assert_int_equal(t.kind, LS_STRESS_TARGET_TCP);
    assert_true(t.is_unix);
    assert_string_equal(t.host, "unix:/run/a.sock");
    t = good("http+unix:/run/a.sock");
    assert_int_equal(t.kind, LS_STRESS_TARGET_HTTP);
    assert_string_equal(ls_stress_target_authority(&t, text, sizeof text), "localhost");
}

static void invalid_urls_are_refused(void **state)
{
    (void)state;
    is_refused("example.org", LS_EINVAL, "invalid URL");
    is_refused("ftp://h/", LS_EINVAL, "invalid URL");
    is_refused("https://", LS_EINVAL, "missing host");
    is_refused("https+unix:/run/a.sock", LS_EINVAL, "invalid URL");
    is_refused("wss://", LS_EINVAL, "missing host");
    is_refused("ws://h/#a", LS_EINVAL, "fragment");
    is_refused("http://", LS_EINVAL, "missing host");
    is_refused("http://:80/", LS_EINVAL, "missing host");
    is_refused("http://h:/", LS_EINVAL, "1 to 65535");
    is_refused("http://h:0/", LS_EINVAL, "1 to 65535");
    is_refused("http://h:65536/", LS_EINVAL, "1 to 65535");
    is_refused("http://h:99999999999999999999/", LS_EINVAL, "1 to 65535");
    is_refused("http://h:8x/", LS_EINVAL, "1 to 65535");
    is_refused("http://[::1/", LS_EINVAL, "missing ]");
    is_refused("http://[::1]8/", LS_EINVAL, "between ] and the port");
    is_refused("http://a@h/", LS_EINVAL, "user names");
    is_refused("http://h/a b", LS_EINVAL, "white space");
    is_refused("http://h/#f", LS_EINVAL, "fragment");
    is_refused("http://h?q", LS_EINVAL, "missing path before the query");
    is_refused("tcp://h", LS_EINVAL, "missing port");
    is_refused("tcp://h:1/path", LS_EINVAL, "have no path");
    is_refused("unix:", LS_EINVAL, "missing path of the Unix socket");
}

static void host_names_are_limited_in_length(void **state)
{
    char url[600] = "http://", why[256];
    ls_stress_target target;
    (void)state;
    memset(url + 7, 'a', LS_STRESS_TARGET_HOST_BYTES - 1);
    assert_int_equal(ls_stress_target_parse(url, &target, why, sizeof why), LS_OK);
    memset(url + 7, 'a', LS_STRESS_TARGET_HOST_BYTES);
    assert_int_equal(ls_stress_target_parse(url, &target, why, sizeof why), LS_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_urls_are_split),
        cmocka_unit_test(invalid_urls_are_refused),
        cmocka_unit_test(host_names_are_limited_in_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
