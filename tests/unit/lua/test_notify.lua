local check = require "check"
local core = require "luaserve.core"
local notify = require "luaserve.notify"

local tests = {}

local IN, OUT, HANGUP = 1, 2, 4

local function registered(...)
  core.taken()
  notify.notify(...)
  local call = core.taken()[1]
  check.equal(call[1], "notify")
  return { call[2], call[3], call[4], call[5] }
end

function tests.events_become_a_set()
  for _, case in ipairs {
    { "in", IN }, { "out", OUT }, { "hangup", HANGUP }, { "err", 0 }, { "in|hangup", IN | HANGUP },
    { "in, out", IN | OUT }, { "in in", IN }, { { "out", "hangup" }, OUT | HANGUP }, { { "in" }, IN },
  } do
    check.equal(registered(7, case[1]), { 7, case[2], false, false })
  end
end

function tests.triggers()
  check.equal(registered(7, "in", { trigger = "edge" }), { 7, IN, true, false })
  check.equal(registered(7, "in", { trigger = "level", oneshot = true }), { 7, IN, false, true })
  check.equal(registered(7, "in", {}), { 7, IN, false, false })
end

function tests.wrong_calls_name_the_line_and_what_would_be_right()
  core.taken()
  for _, case in ipairs {
    { "events are a text such as \"in|hangup\", or a list of names; got nil" }, { "got 5", 5 },
    { "name at least one event: \"in\", \"out\", \"hangup\" or \"err\"; got \"\"", "" }, { "at least one event", "|" },
    { "got a table", {} }, { "there is no event \"read\"", "read" },
    { "there is no event \"inn\"; did you mean 'in'?", "inn" },
    { "there is no event \"hangupp\"; did you mean 'hangup'?", "in|hangupp" }, { "there is no event 1", { 1 } },
    { "options are a table; got \"edge\"", "in", "edge" },
    { "unknown option \"one_shot\"; did you mean 'oneshot'?", "in", { one_shot = true } },
    { "trigger is \"level\" or \"edge\"; got \"both\"", "in", { trigger = "both" } },
    { "oneshot is true or false; got 1", "in", { oneshot = 1 } },
  } do
    check.raises({ check.line(1) .. ": ls.notify: ", case[1] }, function()
      notify.notify(7, case[2], case[3])
    end)
  end
  check.equal(#core.taken(), 0)
end

function tests.what_the_core_says()
  core.results.notify = { nil, "a bad descriptor", "EINVAL", n = 3 }
  check.equal(table.pack(notify.notify(-1, "in")), { n = 3, [2] = "a bad descriptor", [3] = "EINVAL" })
  core.results.notify = function() error("bad argument #1 to '?' (descriptor expected, got nil)", 0) end
  check.raises(check.line(1) .. ": ls.notify: descriptor expected, got nil", function()
    notify.notify(nil, "in")
  end)
  core.results.notify = nil
  core.taken()
end

function tests.rearm_knows_the_names_too()
  local n = {}
  core.taken()
  core.methods.rearm(n, "out|hangup")
  core.methods.rearm(n)
  check.equal(core.taken(), { { "rearm", n, OUT | HANGUP }, { "rearm", n } })
  check.equal(core.methods.rearm_core, nil)
  check.raises({ check.line(1) .. ": n:rearm: ", "there is no event \"outt\"" }, function()
    core.methods.rearm(n, "outt")
  end)
  core.results.rearm = function() error("this notification was removed", 0) end
  check.raises(check.line(1) .. ": this notification was removed", function()
    core.methods.rearm(n, "out")
  end)
  core.results.rearm = nil
  core.taken()
end

function tests.sockets()
  core.taken()
  notify.socket("udp")
  notify.socket("tcp", "ip6")
  check.equal(core.taken(), { { "socket", "udp" }, { "socket", "tcp", "ip6" } })
  check.raises({ check.line(1) .. ": ls.socket: the kind is \"udp\" or \"tcp\"; got \"raw\"" }, function()
    local _ = notify.socket("raw")
  end)
  check.raises({ "the family is \"ip4\" or \"ip6\"; got 4" }, notify.socket, "udp", 4)
  check.equal(#core.taken(), 0)
end

return tests
