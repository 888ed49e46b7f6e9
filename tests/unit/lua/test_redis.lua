-- redis.lua over a fake core: URLs, commands that are refused, what replies become; the slots of a cluster.
local check = require "check"
local core = require "luaserve.core"

local sent -- the commands, as "GET a"
local replies -- by command

local connection = {}
connection.__index = connection
function connection.open() return true end
function connection.is_open() return true end
function connection.wake() end
function connection.wait() return true end
function connection.keep() sent[#sent + 1] = "keep" end
function connection.close() sent[#sent + 1] = "close" end
function connection.finish() sent[#sent + 1] = "finish" end
local function reply_to(...)
  local text = table.concat({ ... }, " ")
  sent[#sent + 1] = text
  local reply = replies[text]
  if type(reply) == "function" then return reply() end
  return reply
end
function connection.call(_, _, ...) return reply_to(...) end
function connection.many(_, _, commands)
  local list = {}
  for i, command in ipairs(commands) do
    local value, failed = reply_to(table.unpack(command, 1, command.n))
    if failed then value = { err = failed } end
    if value == nil then value = false end
    list[i] = value
  end
  return list
end

local dialled

local fakes = { -- of the core
  redis_connection = function() return setmetatable({}, connection) end,
  redis_arguments = function(...)
    for i = 1, select("#", ...) do
      local kind = type((select(i, ...)))
      if kind ~= "string" and kind ~= "number" then return i end
    end
  end,
  connect = function(host, port, limits)
    dialled = { host, port, limits.tls ~= nil }
    return {}
  end,
  spawn = function(fn, ...) fn(...) end,
  can_wait = function() return true end,
  semaphore = function() return {} end,
  semaphore_within = function(_, _, fn, ...) return fn(...) end,
  percent_decode = function(text)
    if text:gsub("%%%x%x", ""):find("%", 1, true) then return nil end
    return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
  end,
}

-- Each test with the fakes in place of the functions of the core.
local function with_fakes(tests)
  for name, fn in pairs(tests) do
    tests[name] = function()
      local before = {}
      for field, fake in pairs(fakes) do before[field], core[field] = core[field], fake end
      local ok, message = xpcall(fn, debug.traceback)
      for field in pairs(fakes) do core[field] = before[field] end
      if not ok then error(message, 0) end
    end
  end
  return tests
end

-- open(url, options) -> a client, in a new copy of the modules
local function open(...)
  sent, replies, dialled = {}, {}, nil
  for _, name in ipairs { "redis", "redis_node", "redis_cluster" } do package.loaded["luaserve." .. name] = nil end
  return require("luaserve.redis").open(...)
end

return with_fakes {
  urls = function()
    for url, expected in pairs {
      ["redis://host"] = { "host", 6379, false }, ["redis://host:7000/"] = { "host", 7000, false },
      ["rediss://host"] = { "host", 6379, true }, ["redis://[::1]:7000"] = { "::1", 7000, false },
      ["redis://[::1]"] = { "::1", 6379, false }, ["unix:/a/b.sock"] = { "unix:/a/b.sock", 0, false },
    } do
      open(url):get("a")
      check.equal(dialled, expected)
      check.equal(sent, { "GET a" })
    end
    for url, expected in pairs {
      ["redis://u:p%40:w@host/3"] = { "AUTH u p@:w", "SELECT 3", "GET a" },
      ["redis://:pw@host"] = { "AUTH pw", "GET a" }, ["unix:/a?db=2"] = { "SELECT 2", "GET a" },
    } do
      open(url):get("a")
      check.equal(sent, expected)
    end
    for url, message in pairs {
      ["host"] = "invalid URL: it begins with", ["127.0.0.1"] = "it has no scheme, as in redis://127.0.0.1", ["redis://"] = "no host", ["redis://h:0"] = "no valid port",
      ["redis://h/12345678901234567890"] = "number of the database", ["unix:/a?db=12345678"] = "invalid URL",
      ["unix:/a?3"] = "unix:/path?db=1", ["unix:/a?db="] = "invalid URL", ["redis://h:65536"] = "no valid port", ["redis://h/x"] = "number of the database",
      ["redis://u:%zz@h"] = "percent-encoded",
    } do check.raises(message, open, url) end
  end,

  one_client_for_the_same_arguments = function()
    local r = open("redis://h", { timeout = 1 })
    local again = require("luaserve.redis").open
    check.equal(rawequal(r, again("redis://h", { timeout = 1 })), true)
    check.equal(rawequal(r, again("redis://h", { timeout = 2 })), false)
    check.equal(rawequal(r, again("redis://h")), false)
  end,

  errors_have_a_code = function()
    local r = open("redis://h")
    for text, code in pairs {
      ["ERR no"] = "EINVAL", ["WRONGTYPE no"] = "EINVAL", ["NOAUTH no"] = "EACCES", ["LOADING no"] = "EBUSY",
      ["OOM no"] = "ELIMIT", ["NOSCRIPT no"] = "ENOENT", ["weird"] = "EINVAL",
    } do
      replies["GET a"] = function() return nil, text end
      check.fails({ message = text, code = code, target = "Redis at h:6379", call = "r:get", retry = code == "EBUSY" },
        r.get, r, "a")
    end
    replies["GET a"] = function() return nil, "closed", "ECLOSED" end
    check.fails({ message = "closed", code = "ECLOSED", target = "Redis at h:6379", retry = false, unreached = true },
      r.get, r, "a")
  end,

  readonly_makes_a_new_connection = function()
    local r = open("redis://h")
    replies["SET a 1"] = function() return nil, "READONLY no" end
    check.fails({ code = "EBUSY", retry = true }, r.set, r, "a", 1)
    check.equal(sent, { "SET a 1", "finish" })
    dialled = nil
    r:get("a")
    check.equal(dialled ~= nil, true)
  end,

  scripts_are_sent_once = function()
    local r = open("redis://h")
    local digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" -- of "return 1"
    local crypto = package.loaded["luaserve.crypto"]
    package.loaded["luaserve.crypto"] = { sha1 = function() return digest end }
    replies["EVALSHA " .. digest .. " 1 k x"] = function() return nil, "NOSCRIPT none" end
    replies["EVAL return 1 1 k x"] = 1
    check.equal({ r:eval("return 1", { "k" }, { "x" }) }, { 1 })
    replies["EVALSHA " .. digest .. " 1 k x"] = 2
    check.equal({ r:eval("return 1", { "k" }, { "x" }) }, { 2 })
    package.loaded["luaserve.crypto"] = crypto
  end,

  replies_that_say_yes_or_no = function()
    local r = open("redis://h")
    replies["SETNX a x"], replies["EXISTS a"], replies["EXISTS a b"], replies["SADD s x"] = 0, 1, 2, 0
    check.equal({ r:setnx("a", "x"), r:exists("a"), r:exists("a", "b"), r:sadd("s", "x"), r:call("SETNX", "a", "x") },
      { false, true, 2, 0, 0 })
    check.equal(r:pipeline(function(p) p:setnx("a", "x") p:exists("a") p:exists("a", "b") p:sadd("s", "x") end),
      { false, true, 2, 0 })
  end,

  transactions = function()
    local r = open("redis://h")
    replies.EXEC = { 1, { "a", "1" } }
    check.equal(r:transaction(function(t) t:incr("a") t:hgetall("h") end), { 1, { a = "1" } })
    check.equal(sent, { "MULTI", "INCR a", "HGETALL h", "EXEC" })
    replies.EXEC = { 1, { err = "LOADING it" } }
    check.fails({ code = "EBUSY", retry = false, unreached = true, message = "LOADING it" }, r.transaction, r,
      function(t) t:incr("a") t:hgetall("h") end)
    replies.EXEC, sent, replies["WATCH a"] = nil, {}, "OK"
    check.fails({ code = "ECHANGED", retry = true, unreached = false }, r.transaction, r, "a",
      function(t) t:incr("a") end)
    check.equal(sent, { "WATCH a", "MULTI", "INCR a", "EXEC", "keep" })
    sent = {}
    check.equal({ r:transaction("a", function(t) t:incr("a") return false, "no" end) }, { false, "no" })
    check.equal(sent, { "WATCH a", "close", "keep" })
  end,

  slots_of_a_cluster = function()
    open("redis://h")
    local slot = require("luaserve.redis_cluster").slot
    check.equal(slot("123456789"), 0x31c3 % 16384)
    check.equal(slot("foo"), 12182)
    check.equal(slot("{foo}.a"), slot("foo"))
    check.equal(slot("a{foo}{bar}"), slot("foo"))
    check.equal(slot("{}foo") == slot("foo"), false)
    check.equal(slot(""), 0)
    local r = open("redis://h", { cluster = true })
    replies["CLUSTER SLOTS"] = { { 0, 1 << 62, { "", 6379 } } } -- of a server that lies; if it is believed, this does not end
    for _, text in ipairs { "MOVED 1 h:" .. ("9"):rep(20), "MOVED " .. ("9"):rep(20) .. " h:1" } do
      replies["GET a"] = function() return nil, text end
      check.fails({ message = text, code = "EBUSY" }, r.get, r, "a")
    end
  end,
}
