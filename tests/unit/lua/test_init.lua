local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local tests = {}

local function hello() return "hello" end

function tests.listen_passes_the_dispatcher_to_the_core()
  core.take_calls()
  local app = ls.app()
  app:get("/", hello)
  local line = check.line(1)
  ls.listen { host = "*", port = 80, handler = app, max_body = "1k" }
  local call = core.take_calls()[1]
  check.equal(call[1], "listen")
  local given = call[2]
  check.equal({ given.host, given.port, given.body_bytes_max }, { "*", 80, 1024 })
  check.equal(given.where:match("[^/]*$"), line)
  check.equal(given.dispatch({}, {}, "GET", "/", false), "hello")
  check.equal(type(given.failed), "function")
end

function tests.a_served_app_cannot_change()
  local api, app = ls.app(), ls.app()
  app:mount("/api", api)
  local line = check.line(1)
  ls.listen(8080, app)
  ls.listen(8081, app)
  for _, one in ipairs { app, api } do
    check.raises({ check.line(1) .. ": app:get: the app cannot change after ls.listen (", line }, function()
      one:get("/late", hello)
    end)
    check.raises("before ls.listen", function() one:use(hello) end)
    check.raises("before ls.listen", function() one:not_found(hello) end)
  end
end

function tests.listen_without_an_app_raises()
  check.raises({ check.line(), "the app is missing" }, function() ls.listen(8080) end)
  check.raises({ check.line(), "the port is missing: ls.listen(8080, app)" }, function() ls.listen(ls.app()) end)
  check.raises("got a table", ls.listen, { port = 80, handler = {} })
  check.raises("pass the app in it", ls.listen, { port = 80 }, ls.app())
end

function tests.listen_takes_options_beside_an_address()
  core.take_calls()
  ls.listen(8080, ls.app(), { max_body = "1m" })
  ls.listen("unix:/x", ls.app(), { idle_timeout = 2 })
  ls.listen(8080, ls.app(), {})
  local calls = core.take_calls()
  check.equal({ calls[1][2].port, calls[1][2].body_bytes_max }, { 8080, 1048576 })
  check.equal({ calls[2][2].host, calls[2][2].idle_ms_max }, { "unix:/x", 2000 })
  check.equal(#calls, 3)
  check.raises({ check.line(1), "unknown option \"max_bdy\"; did you mean 'max_body'?" }, function()
    ls.listen(8080, ls.app(), { max_bdy = 1 })
  end)
  check.raises("port is given by the arguments before", ls.listen, 8080, ls.app(), { port = 1 })
  check.raises("the third argument is a table of options; got \"x\"", ls.listen, 8080, ls.app(), "x")
  check.raises("two tables of options", ls.listen, { port = 1 }, ls.app(), {})
  check.raises("ls.listen(8080, app, options): got 1", ls.listen, 8080, ls.app(), {}, 1)
end

-- The table of a state that has no listener yet.
local function fresh_ls()
  local loaded = package.loaded["luaserve"]
  package.loaded["luaserve"] = nil
  local fresh = require "luaserve"
  package.loaded["luaserve"] = loaded
  return fresh
end

function tests.config_sets_defaults_of_later_listeners()
  local fresh = fresh_ls()
  core.take_calls()
  fresh.config { idle_timeout = 5, threads = 3 }
  fresh.listen(8080, ls.app())
  local calls = core.take_calls()
  check.equal(calls[1], { "config", { threads = 3 } })
  check.equal(calls[2][2].idle_ms_max, 5000)
  check.equal(#calls, 2)
end

function tests.a_default_behind_a_listener_is_refused()
  local fresh = fresh_ls()
  fresh.config { max_body = "2k" }
  local at = check.line(1)
  fresh.listen(8080, fresh.app(), { timeout = 5 })
  core.take_calls()
  local parts = { check.line(1), "max_body comes too late for ls.listen at ", at .. ": put", 'give it max_body = "1k"' }
  check.raises(parts, function() fresh.config { max_body = "1k" } end)
  check.raises("idle_timeout comes too late", fresh.config, { idle_timeout = 70 })
  fresh.config { max_body = 2048, idle_timeout = 75, timeout = 1, threads = 3 } -- in force; its own; of no listener
  fresh.listen(8081, fresh.app())
  local calls = core.take_calls()
  check.equal(calls[1], { "config", { threads = 3 } })
  check.equal(calls[2][2].time_ms_max, 1000)
end

function tests.errors_of_the_core_are_raised_at_the_caller()
  local listen = core.listen
  core.listen = function() error("must be called while the site loads", 0) end
  check.raises({ check.line(1), "ls.listen: must be called while the site loads" }, function()
    ls.listen(8080, ls.app())
  end)
  core.listen = listen
end

function tests.log_formats_arguments_as_print_does()
  core.take_calls()
  ls.log.info("a", nil, 1)
  ls.log.error("b")
  ls.log.debug()
  ls.log.warn(nil)
  check.equal(core.take_calls(), { { "log", "info", "a\tnil\t1" }, { "log", "error", "b" }, { "log", "debug", "" },
    { "log", "warn", "nil" } })
end

function tests.on_passes_known_events_to_the_core()
  core.take_calls()
  ls.on("start", hello)
  check.equal(core.take_calls(), { { "on", "start", hello } })
  check.raises("did you mean 'start'", ls.on, "strat", hello)
  check.raises("needs a function", ls.on, "start", "x")
  check.raises({ check.line(1), 'unknown event "stop"; the events are "start", "drain"' }, function()
    ls.on("stop", hello)
  end)
  check.raises("ls.on(event, fn): got a function", ls.on, "start", hello, hello)
  core.results.on = function() error("must be called while the site loads", 0) end
  check.raises({ check.line(), "ls.on: must be called while the site loads" }, function() ls.on("start", hello) end)
  core.results.on = nil
end

function tests.unknown_names_raise_with_a_suggestion()
  check.raises({ check.line(), "has no ls.lisen; did you mean 'listen'?" }, function() ls.lisen(8080) end)
  check.equal(rawget(ls, "fetchx"), nil)
  check.raises({ check.line(1), "ls.log has no \"warning\"; did you mean 'warn'?" }, function()
    ls.log.warning("x")
  end)
  check.raises("ls.json has no \"encod\"; did you mean 'encode'?", function() ls.json.encod({}) end)
  check.raises("ls.html has no \"escpe\"; did you mean 'escape'?", function() ls.html.escpe("") end)
  check.raises("ls.url has no \"quary\"; did you mean 'query'?", function() ls.url.quary({}) end)
end

return tests
