#define _GNU_SOURCE /* mkstemp */
/* test_handler.c - handlers, called by injected requests: rules for results, errors, req and res. */
/* sanitizers: asan; no thread starts */
#include "script/site_fixture.h"

#define SITE(name) test_lua("script/bind/http/handler.lua", name)

SITE_TEST(results_become_responses)
SITE_TEST(fields_of_req)
SITE_TEST(request_bodies)
SITE_TEST(members_of_res)
SITE_TEST(kept_objects_raise_after_their_request)
SITE_TEST(requests_are_injected_while_loading)

TEST(invalid_results_are_logged_errors)
{
    test_snippet_logs(SITE("invalid_results_are_logged_errors"),
                      "the handler returned the number 42, which is no registered status");
}

TEST(errors_in_failed_end_in_a_500)
{
    test_snippet_logs(SITE("errors_in_failed_end_in_a_500"), "stack traceback");
}

TEST(log_hooks_run_for_each_response)
{
    test_snippet_logs(SITE("log_hooks_run_for_each_response"), "/plain 500");
    test_snippet_logs(SITE("a_log_hook_sees_the_response"), "/seen 201");
}

TEST(sites_that_do_not_load)
{
    test_load_fails("x = = 1", ":2:");
    test_load_fails("error('my text')", "my text");
    test_load_fails("core.sleep(1)", "cannot wait while the site loads");
    test_load_fails("error()", "nil");
    test_load_fails("error({})", ": {}");
    test_load_fails("error({ 'a', code = 7 })", "{ \"a\", code = 7 }");
    test_load_fails("core.config{ lua_bytes_max = 4000000 } local t = {} for i = 1, 1e8 do t[i] = i end",
                    "max_memory");
    test_load_fails("core.config{ lua_all_bytes_max = 4000000 } local t = {} for i = 1, 1e8 do t[i] = i end",
                    "all Lua states together is 4000000 bytes (set by ls.config{ max_states_memory");
    test_load_fails("core.listen{ host = 5, port = 70000, dispatch = print, failed = print }", "port");
}
