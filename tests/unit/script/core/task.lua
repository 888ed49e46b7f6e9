-- task.lua - the sites of test_task.c.
local t = ... -- the helpers of site_fixture.lua
local core, body, is, get, done = t.core, t.body, t.is, t.get, t.done
local cases = {}

function cases.waiting_inside_coroutines()
  body(function()
    local gen = coroutine.wrap(function(a)
      for i = 1, 3 do
        core.sleep(0.001)
        coroutine.yield(a .. i)
      end
    end)
    is(gen("x"), "x1") is(gen(), "x2")
    core.sleep(0)
    is(gen(), "x3")
    local co = coroutine.create(function(...)
      is(select("#", ...), 2)
      local inner = coroutine.create(function()
        core.sleep(0.001)
        return "deep"
      end)
      local ok, v = coroutine.resume(inner)
      is(ok, true) is(v, "deep") is(coroutine.status(inner), "dead")
      is(coroutine.yield("mid"), "back")
      core.sleep(0.001)
      error({ "e" })
    end)
    local ok, v = coroutine.resume(co, 1, 2)
    is(v, "mid")
    ok, v = coroutine.resume(co, "back")
    is(ok, false) is(v[1], "e") is(coroutine.status(co), "dead") is(coroutine.resume(co), false)
    local seen = {}
    for v in coroutine.wrap(function()
      for i = 1, 2 do
        core.sleep(0)
        coroutine.yield(i)
      end
    end) do
      seen[#seen + 1] = v
    end
    is(#seen, 2)
    local t = setmetatable({}, { __index = function(_, k)
      core.sleep(0.001)
      return k .. "!"
    end })
    is(t.a, "a!")
    is(pcall(function()
      core.sleep(0.001)
      error("x", 0)
    end), false)
    local ok, e = xpcall(function()
      core.sleep(0.001)
      error("x", 0)
    end, function(m) return m .. "y" end)
    is(e, "xy")
    ok, e = pcall(table.sort, { 3, 2, 1 }, function(a, b)
      core.sleep(0)
      return a < b
    end)
    is(ok, false)
    if not e:find("cannot wait here") then error(e) end
    ok, e = pcall(table.sort, { 3, 2, 1 }, function(a, b)
      local ok2, e2 = coroutine.resume(coroutine.create(function() core.sleep(0) end))
      is(ok2, false)
      error(e2, 0)
    end)
    if not e:find("cannot wait here") then error(e) end
    is(pcall(coroutine.yield, 1), false) is(coroutine.isyieldable(), false)
    is(coroutine.wrap(function() return coroutine.isyieldable() end)(), true)
    do
      local closed
      local c = coroutine.create(function()
        local x <close> = setmetatable({}, { __close = function() closed = true end })
        coroutine.yield()
      end)
      coroutine.resume(c)
      is(coroutine.close(c), true) is(closed, true)
    end
    local w = coroutine.wrap(function() error("msg", 0) end)
    ok, e = pcall(w)
    is(ok, false)
  end)
end

function cases.a_waiting_coroutine_cannot_be_resumed_or_closed()
  body(function()
    local co = coroutine.create(function()
      core.sleep(0.02)
      return "own"
    end)
    local job = core.spawn(function() return select(2, coroutine.resume(co)) end)
    core.sleep(0.005)
    is(coroutine.status(co), "normal")
    local ok, e = coroutine.resume(co)
    is(ok, false) is(e, "cannot resume waiting coroutine") is(pcall(coroutine.close, co), false)
    is(job:wait(), "own")
    local root
    job = core.spawn(function()
      root = coroutine.running()
      core.sleep(0.02)
      return 1
    end)
    core.sleep(0.005)
    is(coroutine.resume(root), false) is(job:wait(), 1) is(coroutine.resume(root), false)
  end)
end

function cases.jobs()
  body(function()
    local job = core.spawn(function(...)
      core.sleep(0.005)
      return select("#", ...), nil, ...
    end, 1, nil, 3)
    local a, b, c, d, e = job:wait()
    is(a, 3) is(b, nil) is(c, 1) is(d, nil) is(e, 3) is((job:wait()), 3)
    job = core.spawn(function()
      core.sleep(0.2)
      return "late"
    end)
    local v, m, code = job:wait(0.005)
    is(v, nil) is(code, "ETIMEDOUT") is(job:wait(), "late") is(job:wait(0), "late")
    job = core.spawn(function() error({ 7 }) end)
    local ok, err = pcall(job.wait, job)
    is(ok, false) is(err[1], 7)
    local n, jobs = 0, {}
    for i = 1, 500 do
      jobs[i] = core.spawn(function()
        core.sleep(0.001)
        n = n + 1
      end)
    end
    for i = 1, 500 do jobs[i]:wait() end
    is(n, 500)
    job = core.spawn(function()
      core.sleep(0.01)
      return 5
    end)
    local w = {}
    for i = 1, 3 do w[i] = core.spawn(function() return job:wait() end) end
    for i = 1, 3 do is(w[i]:wait(), 5) end
    local me
    me = core.spawn(function() return me:wait() end)
    is(pcall(me.wait, me), false) is(pcall(core.spawn, 5), false) is(pcall(job.wait, {}), false)
    is(pcall(core.sleep, -1), false) is(pcall(core.sleep, 0 / 0), false)
    is(pcall(core.sleep, "x"), false) is(pcall(job.wait, job, -1), false)
  end)
end

function cases.the_error_of_a_job()
  body(function()
    core.spawn(function() error("no task waits") end)
    core.sleep(0.01)
  end)
end

function cases.jobs_have_a_limit()
  core.config{ jobs_max = 3 }
  body(function()
    local function nap() core.sleep(0.001) end
    for round = 1, 3 do
      local jobs = { core.spawn(nap), core.spawn(error, "x"), core.spawn(nap) }
      local ok, e = pcall(core.spawn, nap)
      is(ok, false)
      is(e, "ls.spawn: too many jobs: this Lua state has 3 unfinished ones (max_jobs = 3)")
      for i = 1, 3 do pcall(jobs[i].wait, jobs[i]) end
    end
  end)
end

function cases.timers_have_a_limit()
  core.config{ timers_max = 3 }
  body(function()
    for round = 1, 3 do
      local ticked = 0
      local timers = { core.after(3600, error), core.every(3600, error), core.after(0.001, function() ticked = 1 end) }
      for name, start in pairs{ ["ls.after"] = core.after, ["ls.every"] = core.every } do
        local ok, e = pcall(start, 1, error)
        is(ok, false)
        is(e, name .. ": too many timers: this Lua state has 3 (max_timers = 3)")
      end
      while ticked == 0 do core.sleep(0.001) end -- one of them has ended
      core.after(3600, error):cancel()
      timers[1]:cancel()
      timers[2]:cancel()
    end
  end)
end

function cases.timers_are_memory_of_lua()
  body(function()
    local function used() collectgarbage() collectgarbage() return core.stats().lua_bytes end
    local timers, before = {}, used()
    for n = 1, 1000 do timers[n] = core.after(3600, error) end
    local each = (used() - before) / 1000
    if each < 300 then error(each) end -- 200 without the timer: a table and a handle
    for n = 1, 1000 do timers[n]:cancel() end
    timers = nil
    is(used() - before < 100000, true)
  end)
end

function cases.timers()
  local ticks, once = 0, 0
  core.every(0.005, function(n) ticks = ticks + n end, 2)
  core.after(0.005, function(a, b)
    is(a, nil) is(b, "b")
    once = once + 1
  end, nil, "b")
  local never = core.after(0.001, function() error("cancelled while loading") end)
  never:cancel()
  body(function()
    local t = core.after(0.005, function() core.log("error", "FAILED") end)
    t:cancel()
    t:cancel()
    local count, e = 0
    e = core.every(0.002, function()
      count = count + 1
      if count == 3 then e:cancel() end
    end)
    local slow, inside, most = 0, 0, 0
    core.every(0.001, function() -- its calls never overlap
      slow = slow + 1
      inside = inside + 1
      most = math.max(most, inside)
      core.sleep(0.02)
      inside = inside - 1
    end)
    core.after(0.001, error, "x")
    repeat
      core.sleep(0.01)
      collectgarbage()
    until ticks >= 6 and slow >= 3 and count >= 3 and once >= 1
    core.sleep(0.01)
    is(count, 3) is(once, 1) is(most, 1) is(pcall(core.after, -1, print), false)
    is(pcall(core.every, 0, print), false) is(pcall(core.after, 1), false)
    is(pcall(t.cancel, io.stdout), false)
  end)
end

function cases.buffers()
  local made = core.buffer("prepared")
  body(function()
    local b = core.buffer("abc", 1, "d")
    is(#b, 5) is(b:tostring(), "abc1d") is(tostring(b), "abc1d") is(b:sub(2, 3):tostring(), "bc")
    is(b:sub(-2):tostring(), "1d") is(b:sub(0):tostring(), "abc1d") is(b:sub(4, 2):tostring(), "")
    is(b:sub(-100, 100):tostring(), "abc1d") is(b:sub(9):tostring(), "")
    is(b:append("x", b, made):tostring(), "abc1dxabc1dxprepared")
    local big = core.buffer(("z"):rep(1000):rep(200), "q")
    is(#big, 200001) is(big:sub(-1):tostring(), "q") is(big:sub(100000, 100003):tostring(), "zzzz")
    is(#big:tostring(), 200001)
    local s = big:sub(1, 10)
    big = nil
    collectgarbage()
    is(s:tostring(), ("z"):rep(10))
    local p = core.buffer("one")
    local q = p:sub(1)
    p:append("two")
    q:append("three")
    is(p:tostring(), "onetwo") is(q:tostring(), "onethree") is(pcall(core.buffer, {}), false)
    is(pcall(b.append, b, nil), false) is(pcall(b.sub, "x", 1), false)
    for _ = 1, 2000 do core.buffer(("x"):rep(1000):rep(65)) end -- 130 MB through a pool of 64
    local held = {}
    local ok, e = pcall(function()
      for i = 1, 2000 do held[i] = core.buffer(("x"):rep(1000):rep(65)) end
    end)
    is(ok, false)
    if not e:find("limit") then error(e) end
    held = nil
  end)
end

-- The slices of a buffer are memory of the state.
function cases.a_buffer_that_grows_without_end()
  core.config{ lua_bytes_max = 8 * 1024 * 1024 }
  body(function()
    local b, rounds = core.buffer("x"), 0
    local ok, e = pcall(function()
      for i = 1, 40 do
        b:append(b)
        rounds = i
      end
    end)
    is(ok, false) is(e:find("not enough memory") ~= nil, true) is(rounds < 19, true)
    is(rounds > 10, true) -- 2^18 slices of 24 bytes are 6 MiB is(#b, #b:tostring())
    b = nil
    collectgarbage()
    local held = {}
    for i = 1, 8 do
      held[i] = core.buffer("y")
      for _ = 1, 14 do held[i]:append(held[i]) end
    end
    held = nil
    for i = 1, 100 do
      local c = core.buffer("y")
      for _ = 1, 15 do c:append(c) end
      is(#c, 32768)
    end
  end)
end

function cases.a_buffer_made_while_the_state_closes()
  local old = core.buffer(("o"):rep(100))
  for i = 1, 3 do
    setmetatable({}, { __gc = function()
      t.kept = core.buffer(("x"):rep(10000))
      for _ = 1, 10 do t.kept:append(t.kept) end
      old:append(t.kept, t.kept:sub(2, 5))
      core.log("info", "finalizer " .. #old)
    end })
  end
  core.after(0, function() done() end)
end

function cases.memory_has_a_limit()
  core.config{ lua_bytes_max = 8 * 1024 * 1024 }
  body(function()
    for i = 1, 3 do
      local s = get(function()
        local t = {}
        for i = 1, 1e9 do t[i] = { i } end
      end)
      is(s, 500)
      s = get(function() return ("x"):rep(1 << 30) end)
      is(s, 500)
      s = get(function()
        local s = "x"
        while true do s = s .. s end
      end)
      is(s, 500)
      s = get(function()
        local function f() return 1 + f() end
        return f()
      end)
      is(s, 500)
      s = get(function()
        local t = {}
        while true do t[#t + 1] = coroutine.create(print) end
      end)
      is(s, 500)
      s = get(function() return "well" end)
      is(s, 200)
    end
  end)
end

function cases.processor_time_has_a_limit()
  core.config{ handler_cpu_ms_max = 50 }
  body(function()
    is((get(function() while true do local _ = {} end end)), 500)
    is((get(function()
      while true do
        pcall(function() while true do local _ = {} end end)
      end
    end)), 500)
    is((get(function()
      local co = coroutine.wrap(function() while true do local _ = {} end end)
      while true do pcall(co) end
    end)), 500)
    is((get(function()
      while true do
        pcall(coroutine.wrap(function() while true do local _ = {} end end))
      end
    end)), 500)
    is((get(function()
      local x <close> = setmetatable({}, { __close = function() while true do local _ = {} end end })
      while true do local _ = {} end
    end)), 500)
    is((get(function()
      local ok = pcall(function() while true do local _ = {} end end)
      core.sleep(0)
      return "x"
    end)), 500)
    is((get(function() -- a short sleep gives back the time for which it lasts, which is all on a busy machine
      local used = 0
      for _ = 1, 400 do
        local begun, slept = os.clock(), 0
        for i = 1, 100000 do local _ = {} end
        used, slept = used + os.clock() - begun, core.now()
        core.sleep(0)
        used = math.max(used - (core.now() - slept), 0)
        if used > 0.5 then return "the limit is ten times less" end
      end
      error("it has given way")
    end)), 500)
    is((get(function() return "well" end)), 200)
    is((get(function()
      os.execute("sleep 0.2")
      return "slept"
    end)), 200)
  end)
end

function cases.processor_time_has_a_limit_in_c_functions()
  core.config{ handler_cpu_ms_max = 50 }
  local blanks = "a" .. (" "):rep(100000) .. "a"
  local large = setmetatable({}, { __len = function() return 1 << 53 end })
  local function endless() return ("a"):rep(30):find((".-"):rep(30) .. "b") end
  local function never(name, fn) if get(fn) ~= 500 then error(name) end end
  body(function()
    never("match", function() return blanks:match("^%s*(.-)%s*$") end)
    never("find", endless)
    never("gsub", function() return (blanks:rep(50):gsub("%s+b", "")) end)
    never("gmatch", function() for _ in blanks:rep(50):gmatch("%s+b") do end end)
    never("plain", function()
      local s = ("a"):rep(2000000)
      return s:find(("a"):rep(1000000) .. "b", 1, true)
    end)
    never("rep", function() return ("x"):rep(1 << 30) end)
    never("move", function() table.move({}, 1, 1 << 53, 2, {}) end)
    never("move down", function() table.move({}, 1, 1 << 53, 2) end)
    never("insert", function() table.insert(large, 1, 0) end)
    never("remove", function() table.remove(large, 1) end)
    never("concat", function() table.concat(setmetatable({}, { __index = string.upper }), "", 1, 1 << 53) end)
    never("sort", function()
      table.sort(setmetatable({}, { __len = function() return 1 << 30 end, __index = function()
        return 1
      end, __newindex = function() end }))
    end)
    never("pcall", function() while true do pcall(endless) end end)
    never("coroutine", function() coroutine.wrap(endless)() end)
    never("inside gsub", function() return (("x"):gsub("x", endless)) end)
    is((get(function() return "well" end)), 200)
  end)
end

function cases.copies_of_a_string()
  body(function()
    for _, s in ipairs{ "", "x", "abc", ("y"):rep(40000) } do
      for _, n in ipairs{ 0, 1, 2, 3, 17, 1000 } do
        for _, sep in ipairs{ "", ", " } do
          local copies = {}
          for i = 1, n do copies[i] = s end
          is(s:rep(n, sep) == table.concat(copies, sep), true)
        end
      end
    end
  end)
end

function cases.formats_of_dates_have_a_limit()
  body(function()
    is(#os.date(("%%"):rep(2048)), 2048)
    local ok, e = pcall(os.date, ("%%"):rep(2048) .. "x")
    is(ok, false)
    is(e, "bad argument #1 to 'os.date' (format longer than 4096 bytes)")
    is(os.date("!%Y", 0), "1970")
    is(os.date("!*t", 0).year, 1970)
    is(#os.date() > 10, true)
    is(select(2, pcall(os.date, "%Ez")), "bad argument #1 to 'os.date' (invalid conversion specifier '%Ez')")
  end)
end

function cases.processor_time_has_a_limit_in_close_and_message_handlers()
  core.config{ handler_cpu_ms_max = 50 }
  local function loop() while true do local _ = {} end end
  local function closes(fn)
    return coroutine.create(function()
      local x <close> = setmetatable({}, { __close = loop })
      fn()
    end)
  end
  local function never(name, fn) if get(fn) ~= 500 then error(name) end end
  body(function()
    never("close", function()
      local co = closes(coroutine.yield)
      coroutine.resume(co)
      coroutine.close(co)
    end)
    never("wrap", function()
      coroutine.wrap(function()
        local x <close> = setmetatable({}, { __close = loop })
        error("x")
      end)()
    end)
    never("nested", function()
      local co = coroutine.create(function()
        local x <close> = setmetatable({}, { __close = function()
          local inner = closes(coroutine.yield)
          coroutine.resume(inner)
          coroutine.close(inner)
        end })
        coroutine.yield()
      end)
      coroutine.resume(co)
      coroutine.close(co)
    end)
    never("raised", function()
      local x <close> = setmetatable({}, { __close = function()
        local inner = closes(coroutine.yield)
        coroutine.resume(inner)
        coroutine.close(inner)
      end })
      error("x")
    end)
    never("handler", function() xpcall(error, loop, "x") end)
    never("handler of a loop", function() xpcall(table.sort, loop, { 2, 1 }, loop) end)
    never("handler in sort", function()
      table.sort({ 2, 1 }, function() xpcall(error, loop, "x") end)
    end)
    is((get(function() return "well" end)), 200)
  end)
end

function cases.a_wait_renews_the_processor_time()
  core.config{ handler_cpu_ms_max = 100 }
  local function work(s)
    local t = os.clock()
    while os.clock() - t < s do local _ = {} end
  end
  body(function()
    local s = get(function()
      for i = 1, 8 do
        work(0.03)
        core.sleep(0.001)
      end
      return "x"
    end)
    is(s, 200)
    s = get(function()
      for i = 1, 8 do
        work(0.03)
        core.spawn(print):wait()
      end
      return "x"
    end)
    is(s, 200)
    s = get(function()
      while true do
        work(0.03)
        core.sleep(0.0009)
      end
    end)
    is(s, 500)
    s = get(function()
      while true do
        work(0.002)
        core.sleep(0)
      end
    end)
    is(s, 500)
  end)
end

function cases.giving_way_to_busy_tasks_gives_back_time()
  core.config{ handler_cpu_ms_max = 150 }
  local function work(s)
    local t = os.clock()
    while os.clock() - t < s do local _ = {} end
  end
  body(function()
    local stop
    core.spawn(function()
      while not stop do
        work(0.02)
        core.sleep(0.001)
      end
    end)
    local s = get(function()
      for i = 1, 30 do
        work(0.01)
        core.sleep(0)
      end
      return "x"
    end)
    stop = true
    is(s, 200)
  end)
end

function cases.hooks_of_start_and_drain()
  core.on("start", function() core.log("info", "started") end)
  core.on("drain", function()
    core.sleep(0.01)
    core.log("info", "drained")
    done()
  end)
  core.every(0.001, function() end)
end

function cases.a_site_may_close_with_tasks_under_way()
  core.after(0, function()
    core.after(0.001, function()
      core.log("info", "under way")
      core.sleep(5)
    end)
    for i = 1, 10 do
      core.spawn(function()
        local r = core.buffer("x")
        core.sleep(5)
      end)
    end
    get(function(req, res)
      res:write("x")
      core.sleep(5)
    end)
  end)
end

return cases
