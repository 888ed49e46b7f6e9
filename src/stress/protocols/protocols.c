/* protocols.c - see protocols.h. */
#include "stress/protocols/protocols.h"

#include "stress/scripts/scenario.h"

const ls_stress_proto *ls_stress_protocol(const ls_stress_plan *plan)
{
    static const ls_stress_proto *const protos[] = {
        [LS_STRESS_PLAN_STATIC] = &ls_stress_http_proto,
        [LS_STRESS_PLAN_SCRIPT] = &ls_stress_http_proto,
        [LS_STRESS_PLAN_ECHO] = &ls_stress_echo_proto,
        [LS_STRESS_PLAN_HOLD] = &ls_stress_hold_proto,
        [LS_STRESS_PLAN_FANOUT] = &ls_stress_sse_subscriber_proto,
        [LS_STRESS_PLAN_SCENARIO] = &ls_stress_scenario_proto,
    };
    static const ls_stress_proto *const ws_protos[] = {
        [LS_STRESS_PLAN_ECHO] = &ls_stress_ws_echo_proto,
        [LS_STRESS_PLAN_HOLD] = &ls_stress_ws_hold_proto,
        [LS_STRESS_PLAN_FANOUT] = &ls_stress_ws_subscriber_proto,
        [LS_STRESS_PLAN_SCENARIO] = &ls_stress_scenario_proto,
        [LS_STRESS_PLAN_CYCLES] = &ls_stress_ws_cycle_proto,
    };
    return (plan->kind == LS_STRESS_TARGET_WS ? ws_protos : protos)[plan->mode];
}

const ls_stress_proto *ls_stress_publisher_protocol(const ls_stress_plan *plan)
{
    return plan->sse ? &ls_stress_sse_publisher_proto : &ls_stress_ws_publisher_proto;
}
