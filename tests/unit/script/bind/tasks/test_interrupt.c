/* test_interrupt.c - a computation of Lua is ended from outside, by the number of its object or by all of them. */
#define _GNU_SOURCE
#include "script/bind/tasks/interrupt.h"
#include "script/site_fixture.h"

#define SITE(name) test_lua("script/bind/tasks/interrupt.lua", name)

SITE_TEST(an_object_is_set_by_lua)
SITE_TEST(errors_have_a_traceback_and_calls_are_not_nested)

static void stop(void *server) /* the site has ended */
{
}

/* Run `text` until it logs READY, set the flag of `number`, and run on until DONE. */
static void interrupted(const char *text, uint64_t number)
{
    const ls_site_host host = {.stop = stop};
    test_site *t = test_site_open(text);
    if (t->opened != LS_OK) fail_msg("the site does not load: %s", t->message);
    t->runtime->host = &host;
    test_pump_until(t, "READY");
    ls_interrupts_set(t->runtime, 1000); /* unknown */
    ls_interrupts_set(t->runtime, number);
    test_pump(t);
    if (!t->done || strstr(t->log, "FAILED") != NULL) fail_msg("%s\n%s", t->done ? "failed" : "not done", t->log);
    test_site_close(t);
}

TEST(the_number_chooses_one)
{
    interrupted(SITE("the_number_chooses_one"), 1);
}

TEST(zero_means_all)
{
    interrupted(SITE("zero_means_all"), 0);
}
