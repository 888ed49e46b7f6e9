-- interrupt.lua - the sites of test_interrupt.c.
local t = ... -- the helpers of site_fixture.lua
local core, body, is = t.core, t.body, t.is
local cases = {}

-- Starts two tasks that end by an interruption, the second one also when `b_ends` is set. -> { ended = n, b_ends = }
local function two()
  local a, b = core.interrupt(), core.interrupt()
  is(a.id, 1) is(b.id, 2)
  local state = { ended = 0, b_ends = false }
  local function run(i)
    core.spawn(function()
      local ok, e = pcall(core.interruptible, i, function()
        while not state.b_ends do pcall(core.sleep, 0.001) end
        return "whole"
      end)
      local whole = i == b and state.b_ends
      is(ok, whole) is(e, whole and "whole" or "interrupted")
      state.ended = state.ended + 1
    end)
  end
  run(a)
  run(b)
  core.log("info", "READY")
  return state
end

function cases.the_number_chooses_one()
  body(function()
    local state = two()
    while state.ended < 1 do core.sleep(0.001) end
    for _ = 1, 5 do core.sleep(0.001) end
    is(state.ended, 1)
    state.b_ends = true
    while state.ended < 2 do core.sleep(0.001) end
  end)
end

function cases.zero_means_all()
  body(function()
    local state = two()
    while state.ended < 2 do core.sleep(0.001) end
  end)
end

function cases.an_object_is_set_by_lua()
  body(function()
    local i = core.interrupt()
    is(i.id, 1)
    core.after(0.001, function() i:set() end)
    local ok, e = pcall(core.interruptible, i, function() while true do core.sleep(0.001) end end)
    is(ok, false) is(e, "interrupted")
    ok, e = pcall(core.interruptible, i, function()
      local n = 0
      while true do n = n + 1 end
    end)
    is(e, "interrupted") -- the flag stays until it is cleared
    i:clear()
    local x, y = core.interruptible(i, function(...) return ... end, 1, 2)
    is(x, 1) is(y, 2)
  end)
end

function cases.errors_have_a_traceback_and_calls_are_not_nested()
  body(function()
    local i = core.interrupt()
    local ok, e = pcall(core.interruptible, i, function() error("no", 0) end)
    is(ok, false) is(e:match("^no\nstack traceback:") ~= nil, true)
    ok, e = pcall(core.interruptible, i, function() core.interruptible(i, print) end)
    is(e:match("nested") ~= nil, true)
    ok, e = pcall(coroutine.wrap(function() core.interruptible(i, print) end))
    is(e:match("coroutine of a task") ~= nil, true) is(pcall(core.interruptible, {}, print), false)
  end)
end

return cases
