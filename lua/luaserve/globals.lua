-- globals.lua - the globals that the functions of a site read although nothing sets them, such as a misspelt local: in Lua they are nil.
--
-- The files are compiled again, and the instructions GETTABUP and SETTABUP of Lua 5.4 in them name the globals with their lines. A
-- global is defined if the site has it after the load, if a line of a file sets it, in whatever function, or if programs look
-- whether another Lua has it, as they do at the top level of files, too, where nothing is reported: what is missing there mostly raises.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local globals = {}

local GETTABUP <const>, SETTABUP <const> = 11, 15
local header <const> = "^\27Lua\x54\0\x19\x93\r\n\x1a\n\4\8\8" -- of the format that is read here

local others = {} -- of LuaJIT, Lua 5.1 to 5.3, OpenResty
for name in ("bit bit32 getfenv jit loadstring lua_version module newproxy ngx setfenv unpack"):gmatch("%S+") do others[name] = true end

-- scan(dump, read, set, names): calls read(name, line) and set(name) for each global of a compiled file, and adds the names of its locals.
local function scan(dump, read, set, names)
  local at = 33

  local function number()
    local value, byte = 0, nil
    repeat
      byte, at = dump:byte(at), at + 1
      value = value << 7 | byte & 127
    until byte > 127
    return value
  end

  local function text()
    local length = number() - 1
    at = at + math.max(length, 0)
    return length >= 0 and dump:sub(at - length, at - 1) or nil
  end

  local function proto(top)
    text()
    local line = number()
    number()
    at = at + 3
    local count = number()
    local code, constants, above, lines = at, {}, {}, nil
    at = at + 4 * count
    for i = 0, number() - 1 do
      local kind = dump:byte(at) & 15
      at = at + 1
      if kind == 4 then constants[i] = text() elseif kind == 3 then at = at + 8 end
    end
    local upvalues = number()
    at = at + 3 * upvalues
    for _ = 1, number() do proto(false) end
    local absolute = {}
    local sizes = number()
    lines, at = at, at + sizes
    for _ = 1, number() do
      local pc = number()
      absolute[pc] = number()
    end
    for _ = 1, number() do
      names[text()] = true
      number()
      number()
    end
    for i = 0, number() - 1 do above[i] = text() end
    for pc = 0, count - 1 do
      local step, instruction = string.unpack("b", dump, lines + pc), string.unpack("I4", dump, code + 4 * pc)
      line = absolute[pc] or line + step
      if instruction & 127 == GETTABUP and not top and above[instruction >> 16 & 255] == "_ENV" then
        read(constants[instruction >> 24], line)
      elseif instruction & 127 == SETTABUP and above[instruction >> 7 & 255] == "_ENV" then
        set(constants[instruction >> 16 & 255])
      end
    end
  end

  proto(true)
end

-- globals.warn(): logs the lines of the files that the site has loaded.
function globals.warn()
  local meta, paths, reads = getmetatable(_G), { arg and arg[0] }, {} -- arg: -e and the standard input have no file
  local known, names = setmetatable({}, { __index = others }), {}
  if meta and rawget(meta, "__index") then return end -- the site has a rule of its own
  for path, is_file in pairs(core.kept()) do paths[#paths + 1] = is_file == true and path or nil end
  for name in next, _G do known[name] = true end
  table.sort(paths)
  for _, path in ipairs(paths) do
    local file = io.open(path, "rb")
    local text = file and file:read("a"):gsub("^\xef\xbb\xbf", ""):gsub("^#[^\n]*", "") or ""
    if file then file:close() end
    local fn = load(text, "@" .. path, "t")
    local dump = fn and string.dump(fn) or ""
    if dump:find(header) then
      local source = debug.getinfo(fn, "S").short_src
      for name in text:gmatch("_G%.([%a_][%w_]*)%s*=[^=]") do known[name] = true end
      scan(dump, function(name, line) reads[#reads + 1] = { name, source .. ":" .. line } end,
        function(name) known[name] = true end, names)
    end
  end
  for name in next, known do names[name] = true end
  for _, read in ipairs(reads) do
    local name, place = read[1], read[2]
    local line = not known[name] and ("%s: reads the global %s, which nothing sets, so it is nil%s"):format(place, name,
      names[name] and ": the local of this name is not visible here" or usage.suggest(name, names))
    if line and (not core.dev or core.dev.once(line)) then core.log("warn", line) end
  end
end

return globals
