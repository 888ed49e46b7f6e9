-- acme_store.lua - where tls.acme keeps its account, keys, certificates and what it has tried: a folder, or a Redis that
-- several servers share. All functions but the first two wait, and raise a text when the store fails.
--
-- A lease belongs to one server at a time and ends by itself when that server dies. Of a folder it is a directory, whose
-- time is that of its last extension. Two servers that find one that has ended at the same moment may both take it: then
-- there are two orders.

local core = require "luaserve.core"

local error, setmetatable, type = error, setmetatable, type -- a site may replace the globals

local store = {}

local LEASE_S <const> = 60
local FILE_BYTES_MAX <const> = 1 << 20

local function sure(value, message, ...)
  if value == nil and message then error(message, 0) end
  return value, message, ...
end

-- ---- a folder ----------------------------------------------------------------------------------------------------------

local folder = {}
folder.__index = folder

-- unusable() -> why it can never work | nil. It makes nothing: --check calls it.
function folder:unusable()
  local path = self.path:gsub("/$", "")
  repeat
    local info, message, code = core.file_stat(path)
    if info then return info.type ~= "directory" and path .. " is no folder" or nil end
    if code ~= "ENOENT" and code ~= "ENOTDIR" then return message end
    path = path:match("^(.+)[/\\][^/\\]+$")
  until not path
end

-- prepare(): what the store needs is there. Raises.
function folder:prepare() sure(core.file_mkdir(self.path, true)) end

-- place(key) -> where the user finds it
function folder:place(key) return core.site_path(self.path .. key) end

function folder:read(key)
  local text, message, code = core.file_read(self.path .. key, FILE_BYTES_MAX)
  if code == "ENOENT" then return nil end
  return sure(text, message)
end

-- The data are on the device, and other users cannot read them, when it returns.
function folder:write(key, text)
  sure(core.file_mkdir(self.path, true))
  sure(core.file_write(self.path .. key, text, false, false, true, false, true))
end

function folder:remove(key)
  local ok, message, code = core.file_remove(self.path .. key)
  if code ~= "ENOENT" then sure(ok, message) end
end

-- take(name) -> whether this server has the lease now
function folder:take(name)
  local path = self.path .. name .. ".lease"
  sure(core.file_mkdir(self.path, true))
  local ok, message, code = core.file_mkdir(path, false)
  if ok then return true end
  if code ~= "EEXIST" then error(message, 0) end
  local info = core.file_stat(path)
  if not info or core.wall_time() - info.mtime < LEASE_S then return false end
  self:give(name)
  return core.file_mkdir(path, false) == true
end

function folder:extend(name) sure(core.file_write(self.path .. name .. ".lease/held", "", false, false, false)) end

function folder:give(name)
  core.file_remove(self.path .. name .. ".lease/held")
  core.file_remove(self.path .. name .. ".lease")
end

-- ---- Redis -------------------------------------------------------------------------------------------------------------

local redis = {}
redis.__index = redis

local function ask(self, kind, ...) return sure(require("luaserve.redis").ask(self.client, kind, ...)) end

function redis.unusable() end
function redis.prepare() end
function redis:place(key) return "the key " .. self.path .. key .. " of the Redis" end

function redis:read(key) return (ask(self, "string", "GET", self.path .. key)) end
function redis:write(key, text) ask(self, "string", "SET", self.path .. key, text) end
function redis:remove(key) ask(self, "number", "DEL", self.path .. key) end

function redis:take(name)
  return ask(self, "string", "SET", self.path .. name .. ".lease", self.owner, "NX", "EX", LEASE_S) ~= nil
end

local if_owner <const> = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3)) end return 0"

local function of_owner(self, name, ...)
  sure(require("luaserve.redis").eval(self.client, nil, if_owner, { self.path .. name .. ".lease" }, { self.owner, ... }))
end

function redis:extend(name) of_owner(self, name, "EXPIRE", LEASE_S) end
function redis:give(name) of_owner(self, name, "DEL") end

-- ---- open --------------------------------------------------------------------------------------------------------------

-- is(value) -> whether it is a store as a site gives it
function store.is(value)
  if type(value) == "string" then return value ~= "" and not value:find "\0" and not value:find "^redi[^/]*:/[^/]" end
  return require("luaserve.redis").is(value)
end

-- open(given, authority) -> the store, whose keys are those of this authority. Raises for a URL of Redis that is not valid.
function store.open(given, authority)
  if type(given) == "string" and not given:find("^rediss?://") then
    local path = given:gsub("[/\\]$", "") .. "/"
    require("luaserve.private").file(path .. authority, "the keys of tls.acme")
    return setmetatable({ path = path .. authority .. "/" }, folder)
  end
  local client = type(given) == "string" and require("luaserve.redis").open(given) or given
  return setmetatable({ client = client, path = "luaserve:{acme}:" .. authority .. ":",
    owner = core.crypto_encode(3, core.crypto_random(16)) }, redis)
end

return store
