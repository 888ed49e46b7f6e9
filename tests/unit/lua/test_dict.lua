local check = require "check"
local core = require "luaserve.core"
local dict = require "luaserve.dict"

local tests = {}

local opened = 0

-- The methods that dict.lua gives to the core.
local function methods()
  local found
  opened = opened + 1
  core.results.dict = function(_, _, given)
    found = given
    return {}
  end
  dict.open("methods" .. opened)
  core.results.dict = nil
  core.take_calls()
  return found
end

function tests.options_reach_the_core()
  for n, case in ipairs {
    { nil }, { {}, 16 << 20, false }, { { size = "64k" }, 65536, false }, { { evict = true }, 16 << 20, true },
    { { size = 4096, evict = true }, 4096, true },
  } do
    core.take_calls()
    core.results.dict = { {}, n = 1 }
    dict.open("options " .. n, case[1])
    local call = core.take_calls()[1]
    check.equal({ call[1], call[2], call[5], call[6] }, { "dict", "options " .. n, case[2], case[3] })
  end
  core.results.dict = nil
end

function tests.a_dict_is_opened_once_in_a_state()
  core.results.dict = { {}, n = 1 }
  local first = dict.open("once")
  core.take_calls()
  check.equal(dict.open("once") == first, true)
  check.equal(#core.take_calls(), 0)
  core.results.dict = nil
end

function tests.usage_errors_name_the_line()
  for _, case in ipairs {
    { "the name must be a string of 1 to 100 bytes", nil }, { "got 5", 5 }, { "got \"\"", "" }, { "got ", ("n"):rep(101) },
    { "control characters", "a\0b" }, { "options must be a table", "a", "16m" }, { "size must be", "a", { size = "x" } },
    { "did you mean 'evict'?", "a", { evicts = true } },
  } do
    check.raises({ check.line() .. ": ls.dict: ", case[1] }, function() dict.open(case[2], case[3]) end)
  end
  for _, case in ipairs {
    { "none", false, { size = "2m" }, "" },
    { "/site/a.db", false, { file = "a.db" }, ", file /site/a.db, sync = false" },
    { "/site/a.db", false, { file = "b.db" }, ", file /site/a.db, sync = false; a change of file or sync needs a restart" },
    { "/site/a.db", true, { file = "a.db" }, ", file /site/a.db, sync = true; a change of file or sync needs a restart" },
    { "/site/a.db", false, {}, ", file /site/a.db, sync = false; a change of file or sync needs a restart" },
    { "none", false, { file = "a.db" }, ", file none, sync = false; a change of file or sync needs a restart" },
  } do
    core.results.dict = { false, "site.lua:3", "1 MiB", false, case[1], case[2], n = 6 }
    local _, message = pcall(dict.open, "x", case[3])
    check.equal(message:match("%d: (ls.dict.*)"), 'ls.dict: "x" has other options at site.lua:3: size 1 MiB, evict = false'
      .. case[4])
  end
  check.raises(check.line() .. ": ls.dict: ", function() dict.open("x", { size = "2m" }) end)
  local here = debug.getinfo(1, "Sl")
  core.results.dict = { false, here.short_src .. ":" .. here.currentline + 2, "1 MiB", false, "none", false, n = 6 }
  check.raises("evict = false; this line must give the same", function() dict.open("x", { size = "2m" }) end)
  core.results.dict = nil
end

function tests.update_runs_again_for_another_version()
  local versions, stored = { 1, 2 }, nil
  core.results.dict_read = function() return versions[1] * 10, versions[1] end
  core.results.dict_swap = function(_, _, value, version)
    if version == 1 then
      table.remove(versions, 1)
      return nil, "would block", "EAGAIN"
    end
    stored = value
    return true
  end
  check.equal(methods().update({}, "k", function(old) return old + 1 end), 21)
  check.equal(stored, 21)
  versions = { 1, 2 }
  check.equal(table.pack(methods().update({}, "k", function(old) return old, old == 20 end)), { 20, true, n = 2 })
  core.results.dict_swap = { nil, "no memory", "ELIMIT", n = 3 }
  check.equal(table.pack(methods().update({}, "k", function() return 1 end)), { n = 3, [2] = "no memory", [3] = "ELIMIT" })
  core.results.dict_swap = { nil, "value is a function", "EINVAL", n = 3 }
  check.raises({ check.line(1) .. ": dict:update: the function has returned no value" }, function()
    methods().update({}, "k", function() end)
  end)
  check.raises({ check.line(1) .. ": dict:update: value is a function" }, function()
    methods().update({}, "k", function() return print end)
  end)
  core.results.dict_read, core.results.dict_swap = nil, nil
end

function tests.keys_and_pairs_read_all_batches()
  local batches = { [0] = { { "a", 1 }, 7 }, [7] = { {}, 9 }, [9] = { { "b", 2 }, 0 } }
  core.results.dict_scan = function(_, cursor, values)
    local batch = batches[cursor]
    local out = values and batch[1] or { batch[1][1] }
    return out, #out, batch[2]
  end
  check.equal(methods().keys({}), { "a", "b" })
  check.equal(methods().keys({}, "b"), { "b" })
  check.equal(methods().keys({}, nil, 1), { "a" })
  check.equal(methods().keys({}, nil, 0), {})
  local seen = {}
  for k, v in methods().pairs({}) do seen[k] = v end
  check.equal(seen, { a = 1, b = 2 })
  core.results.dict_scan = nil
end

return tests
