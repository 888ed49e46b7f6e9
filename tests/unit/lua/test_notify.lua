local check = require "check"
local core = require "luaserve.core"
local notify = require "luaserve.notify"

local tests = {}

local IN, OUT, HANGUP = 1, 2, 4

local function registered(...)
  core.take_calls()
  notify.notify(...)
  local call = core.take_calls()[1]
  check.equal(call[1], "notify")
  return { call[2], call[3], call[4], call[5] }
end

function tests.event_names_become_bits()
  for _, case in ipairs {
    { "in", IN }, { "out", OUT }, { "hangup", HANGUP }, { "err", 0 }, { "in|hangup", IN | HANGUP },
    { "in, out", IN | OUT }, { "in in", IN }, { { "out", "hangup" }, OUT | HANGUP }, { { "in" }, IN },
  } do
    check.equal(registered(7, case[1]), { 7, case[2], false, false })
  end
end

function tests.triggers_become_flags()
  check.equal(registered(7, "in", { trigger = "edge" }), { 7, IN, true, false })
  check.equal(registered(7, "in", { trigger = "level", oneshot = true }), { 7, IN, false, true })
  check.equal(registered(7, "in", {}), { 7, IN, false, false })
end

function tests.usage_errors_name_the_line_and_the_valid_arguments()
  core.take_calls()
  for _, case in ipairs {
    { "events must be a string such as \"in|hangup\" or a list of names; got nil" }, { "got 5", 5 },
    { "name at least one event: \"in\", \"out\", \"hangup\" or \"err\"; got \"\"", "" }, { "at least one event", "|" },
    { "got a table", {} }, { "unknown event \"read\"", "read" },
    { "unknown event \"inn\"; did you mean 'in'?", "inn" },
    { "unknown event \"hangupp\"; did you mean 'hangup'?", "in|hangupp" }, { "unknown event 1", { 1 } },
    { "options must be a table; got \"edge\"", "in", "edge" },
    { "unknown option \"one_shot\"; did you mean 'oneshot'?", "in", { one_shot = true } },
    { "trigger must be \"level\" or \"edge\"; got \"both\"", "in", { trigger = "both" } },
    { "oneshot must be true or false; got 1", "in", { oneshot = 1 } },
  } do
    check.raises({ check.line() .. ": ls.notify: ", case[1] }, function() notify.notify(7, case[2], case[3]) end)
  end
  check.equal(#core.take_calls(), 0)
end

function tests.results_and_errors_of_the_core_are_passed_on()
  core.results.notify = { nil, "invalid descriptor", "EINVAL", n = 3 }
  check.equal(table.pack(notify.notify(-1, "in")), { n = 3, [2] = "invalid descriptor", [3] = "EINVAL" })
  core.results.notify = function() error("bad argument #1 to '?' (descriptor expected, got nil)", 0) end
  check.raises(check.line() .. ": ls.notify: descriptor expected, got nil", function() notify.notify(nil, "in") end)
  core.results.notify = nil
  core.take_calls()
end

function tests.the_events_of_rearm()
  check.equal(notify.filter_of("n:rearm", "out|hangup"), OUT | HANGUP)
  check.raises({ check.line(1) .. ": n:rearm: ", "unknown event \"outt\"" }, function()
    local _ = notify.filter_of("n:rearm", "outt")
  end)
end

function tests.socket_checks_kind_and_family()
  core.take_calls()
  notify.socket("udp")
  notify.socket("tcp", "ip6")
  check.equal(core.take_calls(), { { "socket", "udp" }, { "socket", "tcp", "ip6" } })
  check.raises({ check.line(1) .. ": ls.socket: the kind must be \"udp\" or \"tcp\"; got \"raw\"" }, function()
    local _ = notify.socket("raw")
  end)
  check.raises({ "the family must be \"ip4\" or \"ip6\"; got 4" }, notify.socket, "udp", 4)
  check.equal(#core.take_calls(), 0)
end

return tests
