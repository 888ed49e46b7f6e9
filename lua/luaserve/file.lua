-- file.lua - ls.file: checks paths, options and numbers for the core, and what needs no C: lines, removing a directory
-- with its content.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

-- A site may replace the globals.
local byte, concat, find, sub = string.byte, table.concat, string.find, string.sub
local tostring, type = tostring, type

-- ls.file is a File: reads and writes files. Its functions wait.
-- info is a FileInfo: what ls.file.stat returns, and ls.file.list with `details`.
-- info.type: "file"|"directory"|"other" - its kind
-- info.size: integer - bytes of a regular file, else 0
-- info.mtime: number - time of the last change, as that of os.time()
-- info.name: string? - from ls.file.list
local file = {}

local max_default = 64 * 1024 * 1024

local write_options = {
  append = { "append", "flag" }, -- add to the file
  atomic = { "atomic", "flag" }, -- write a new file, which replaces the old one; default: true unless append
  sync = { "sync", "flag" }, -- return when the device has the data; default: the value of atomic
}
local list_options = {
  details = { "details", "flag" }, -- tables with name and type in place of names
}
local mkdir_options = {
  parents = { "parents", "flag" }, -- also missing parents; a directory that exists is no failure
}
local remove_options = {
  recursive = { "recursive", "flag" }, -- remove a directory with its content
}
file.calls = {
  ["ls.file.write"] = { write_options, listed = true }, -- FileWriteOptions
  ["ls.file.list"] = { list_options, listed = true }, -- FileListOptions
  ["ls.file.mkdir"] = { mkdir_options, listed = true }, -- FileMkdirOptions
  ["ls.file.remove"] = { remove_options, listed = true }, -- FileRemoveOptions
}

local function check_path(call, path, what)
  usage.refuse(type(path) ~= "string" or path == "" or find(path, "\0", 1, true), path,
    '%s: %s must be a string, such as "data/page.html"', call, what or "path")
end

local function check_options(call, given)
  if given == nil then return {} end
  usage.check(given, "table", "%s: options must be a table, such as { %s = true }", call, next(file.calls[call][1]))
  return options.take(call, given, file.calls[call], {})
end

-- In dev mode, the site is reloaded when a file changes that it has read while it was loaded; but not for a file that it
-- writes itself. `use`: "data" or "own".
local function watch(path, use, append)
  if not core.dev then return end
  if use == "own" or core.thread() == 0 then core.dev.file(core.site_path(path), use) end
  require("luaserve.dev_state").watch_file(path, use, append)
end

-- ls.file.read(path [, max: Size]) -> data: string | nil, message, code
-- The content of a regular file. ELIMIT: it has more than `max` bytes, 64m unless given.
function file.read(path, max, ...)
  check_path("ls.file.read", path)
  max = options.max("ls.file.read", max, max_default)
  usage.no_more("ls.file.read(path, max)", max, ...)
  watch(path, "data")
  return usage.call("ls.file.read", core.file_read, path, max)
end

-- ls.file.write(path, data: string|number|Buffer [, options: FileWriteOptions]) -> true | nil, message, code
-- Makes the data the content of a file, or appends them. The file is replaced in one step, unless `atomic` is false.
function file.write(path, data, given, ...)
  check_path("ls.file.write", path)
  if type(data) == "number" then
    data = tostring(data)
  elseif type(data) ~= "string" and not usage.call("ls.file.write", core.is_buffer, data) then
    usage.error("ls.file.write: data must be a string, a number or a buffer; got %s", usage.quote(data))
  end
  usage.no_more("ls.file.write(path, data, options)", given, ...)
  local o = check_options("ls.file.write", given)
  if o.append and o.atomic then
    usage.error("ls.file.write: append adds to the file itself, which is not atomic: leave one of the two out")
  end
  local atomic = not o.append and o.atomic ~= false
  local sync = o.sync
  if sync == nil then sync = atomic end
  watch(path, "own", o.append)
  return usage.call("ls.file.write", core.file_write, path, data, o.append, not atomic, sync)
end

-- ls.file.stat(path) -> info: FileInfo | nil, message, code
-- The properties of a file. Symbolic links are followed.
function file.stat(path, ...)
  check_path("ls.file.stat", path)
  usage.no_more("ls.file.stat(path)", path, ...)
  return usage.call("ls.file.stat", core.file_stat, path)
end

-- ls.file.list(path [, options: FileListOptions]) -> names: (string|FileInfo)[] | nil, message, code
-- The sorted names in a directory; with `details` a table for each, with its name.
function file.list(path, given, ...)
  check_path("ls.file.list", path)
  usage.no_more("ls.file.list(path, options)", given, ...)
  return usage.call("ls.file.list", core.file_list, path, check_options("ls.file.list", given).details)
end

-- ls.file.mkdir(path [, options: FileMkdirOptions]) -> true | nil, message, code
-- Makes a directory.
function file.mkdir(path, given, ...)
  check_path("ls.file.mkdir", path)
  usage.no_more("ls.file.mkdir(path, options)", given, ...)
  local ok, message, code = usage.call("ls.file.mkdir", core.file_mkdir, path, check_options("ls.file.mkdir", given).parents)
  if ok then return true end
  if code == "ENOENT" then message = path .. ": no directory above it; parents = true makes them" end
  return nil, message, code
end

-- A link is removed itself: only a directory that is not empty is read.
local function remove_all(path)
  local ok, message, code = usage.call("ls.file.remove", core.file_remove, path)
  if ok then return true end
  if code ~= "ENOTEMPTY" then return nil, message, code end
  local names
  names, message, code = usage.call("ls.file.list", core.file_list, path)
  if not names then return nil, message, code end
  for _, name in ipairs(names) do
    ok, message, code = remove_all(path .. "/" .. name)
    if not ok and code ~= "ENOENT" then return nil, message, code end
  end
  return usage.call("ls.file.remove", core.file_remove, path)
end

-- ls.file.remove(path [, options: FileRemoveOptions]) -> true | nil, message, code
-- Removes a file, a symbolic link itself, or an empty directory; `recursive`: a directory with its content.
function file.remove(path, given, ...)
  check_path("ls.file.remove", path)
  usage.no_more("ls.file.remove(path, options)", given, ...)
  if check_options("ls.file.remove", given).recursive then return remove_all(path) end
  return usage.call("ls.file.remove", core.file_remove, path)
end

-- ls.file.rename(from: string, to: string) -> true | nil, message, code
-- Gives a file or a directory another name. A file of that name is replaced in one step.
function file.rename(from, to, ...)
  check_path("ls.file.rename", from, "the first path")
  check_path("ls.file.rename", to, "the second path")
  usage.no_more("ls.file.rename(from, to)", to, ...)
  watch(to, "own")
  return usage.call("ls.file.rename", core.file_rename, from, to)
end

-- ls.file.lines(path [, max: Size]) -> iterator: fun(): string?
-- Iterates over the lines of a file, without their ends, "\n" or "\r\n". Raises when the file cannot be read, and for a
-- line of more than `max` bytes, 64m unless given.
function file.lines(path, max, ...)
  check_path("ls.file.lines", path)
  max = options.max("ls.file.lines", max, max_default)
  usage.no_more("ls.file.lines(path, max)", max, ...)
  watch(path, "data")
  local opened, failure = usage.call("ls.file.lines", core.file_open, path)
  if not opened then usage.error("ls.file.lines: %s", failure) end
  local text, at = "", 1
  local parts, parts_bytes = {}, 0 -- the beginning of a line that ends in a later chunk

  -- joined(part [, more]) -> the line that ends with the part, or nothing: `more` of it follows.
  local function joined(part, more)
    if more or parts_bytes > 0 then
      parts[#parts + 1] = part
      parts_bytes = parts_bytes + #part
      if more and parts_bytes <= max + 1 then return end -- its last byte may be "\r"
      part = concat(parts)
      parts, parts_bytes = {}, 0
    end
    if byte(part, -1) == 13 then part = sub(part, 1, -2) end
    if #part > max then
      usage.error("ls.file.lines: %s: a line has more than %d bytes, the limit `max`", path, max)
    end
    return part
  end

  return function()
    while text do
      local stop = find(text, "\n", at, true)
      if stop then
        local line = joined(sub(text, at, stop - 1))
        at = stop + 1
        return line
      end
      if at <= #text then joined(sub(text, at), true) end
      local more, message = usage.call("ls.file.lines", core.file_more, path, opened)
      if not more then usage.error("ls.file.lines: %s", message) end
      text, at = more ~= "" and more or nil, 1
    end
    if parts_bytes > 0 then return joined("") end
  end, nil, nil, opened
end

return file
