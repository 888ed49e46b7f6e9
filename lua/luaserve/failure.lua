-- failure.lua - what a database raises when a call of it fails: ls.sqlite, ls.postgres, ls.redis, and a dict that is in a
-- file or in Redis.
--
-- The failure of a call is an object. tostring gives the line of the site, the call, the target, the reason and the
-- statement. The core knows the object by the name of its metatable (src/script/core/task_error.c): a handler that does
-- not catch it is answered with 503 if `unreached`, else with 500, and the log has a line per place, kind and
-- minute.

local usage = require "luaserve.usage"

-- A site may replace the globals.
local error, getmetatable, pcall, setmetatable, tostring, type = error, getmetatable, pcall, setmetatable, tostring, type
local concat, sub = table.concat, string.sub

local failure = {}

local SHOWN_BYTES <const> = 200 -- of a statement in a message

-- Codes of a server that was not reached, did not answer in time, or is busy; whether the same call may succeed later,
-- because it has had no effect.
local unreached <const> = {
  EREFUSED = true, EUNREACH = true, EBUSY = true, ETIMEDOUT = false, ECLOSED = false, ERESET = false, EPIPE = false,
  ETRUNCATED = false,
}

local meta = { __name = "luaserve.failure" }

function meta.__tostring(e)
  local sql = e.statement
  if sql and #sql > SHOWN_BYTES then sql = sub(sql, 1, SHOWN_BYTES):gsub("[\xC0-\xFF][\x80-\xBF]*$", "") .. "..." end
  return concat { e.where and e.where .. ": " or "", e.call, ": ", e.target and e.target .. ": " or "", e.message,
    sql and " in: " .. sql or "" }
end

function meta.__concat(a, b) return tostring(a) .. tostring(b) end

-- e is a Failure: what a database raises when a call of it fails.
-- e.message: string - the reason
-- e.code: string - such as `"EEXIST"`: the tables of ls.sqlite, ls.postgres and ls.redis
-- e.sqlstate: string? - of PostgreSQL, if the server has sent one
-- e.statement: string? - the statement
-- e.target: string? - the database
-- e.replies: any[]? - of r:pipeline and r:transaction, if it is an error among these; an error is { err = message }
-- e.retry: boolean - the call has had no effect, and may succeed when it is tried again
--
-- raise(call, e): raises the failure `e` of a call, such as "db:exec", at the line of the site. e: the fields message and
-- code, also target, sqlstate, statement and retry; `unsent`: the server was not reached at all.
function failure.raise(call, e)
  local known = unreached[e.code]
  e.call, e.where = call, usage.caller()
  e.kind = concat { tostring(e.code), " ", sub(e.message:match("^[^:]*"), 1, 60) } -- what follows may be of a client
  e.unreached = known ~= nil or e.unsent == true and e.code ~= "EACCES"
  if e.retry == nil then e.retry = known == true or e.code == "ECHANGED" or e.unsent == true and e.unreached end
  error(setmetatable(e, meta), 0)
end

local function tried(ok, first, ...)
  if ok then return first, ... end
  if getmetatable(first) ~= meta then error(first, 0) end
  return nil, first
end

-- ls.try(fn: function, ...: any) -> result: any | nil, e: Failure
-- Calls a function with the other arguments and returns its results; nil and the failure when a database has raised one.
-- Other errors continue.
function failure.try(fn, ...)
  if type(fn) ~= "function" then usage.error("ls.try: the first argument must be a function; got %s", usage.quote(fn)) end
  return tried(pcall(fn, ...))
end

return failure
