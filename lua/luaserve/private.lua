-- private.lua - files that a site has for itself, which app:static must not serve: its own file, those of its databases and
-- dicts, keys, and the modules that it has loaded.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local private = {}

local folders, files = {}, { [core.dir or ""] = "the site file" } -- by absolute paths
local data = {} -- those that `luaserve pack` leaves outside: not the site and its modules

-- A path whose folder exists, or will be made, as an absolute one; nil: that is no file.
local function absolute(path)
  local above, name = path:match("^(.-)[/\\]?([^/\\]+)$")
  local folder = above and (core.absolute_path(above == "" and not path:find("^[/\\]") and "." or above .. "/") or absolute(above))
  return folder and folder:gsub("[/\\]$", "") .. "/" .. name
end

local function check(folder, file, name)
  local rest = file:sub(1, #folder) == folder and file:sub(#folder + 1)
  if rest and (rest == "" or folder:find("[/\\]$") or rest:find("^[/\\]")) then
    usage.error("app:static would serve %s, because it lies in %s: make a folder for what clients may get, such as "
      .. '"public"', name, usage.quote(folder))
  end
end

-- private.folder(path): app:static serves this folder. Raises when it has a private file.
function private.folder(path)
  local folder = core.absolute_path(path)
  if not folder then return end
  for module in pairs(package.loaded) do
    local file = not module:find("^luaserve%f[.%z]") and package.searchpath(module, package.path)
    if file then private.file(file, "the module " .. module, true) end
  end
  for file, name in pairs(files) do check(folder, file, name) end
  folders[#folders + 1] = folder
end

-- private.file(path, name [, is_source]): the site uses this file. Raises when app:static serves it.
function private.file(path, name, is_source)
  local file = absolute(path)
  if not file or files[file] then return end
  for _, folder in ipairs(folders) do check(folder, file, name) end
  files[file] = name
  if not is_source then data[file] = name end
end

-- private.store(path, name): the same for a file that the site has opened to write. A reload finds that it was removed.
function private.store(path, name)
  private.file(path, name)
  local _, _, code = core.file_stat(path)
  if code == "ENOENT" then
    core.log("warn", name .. " was removed while it is in use: what the server writes to it is lost when it ends")
  end
end

-- private.data() -> the names of the files by their absolute paths, without the site and its modules
function private.data() return data end

return private
