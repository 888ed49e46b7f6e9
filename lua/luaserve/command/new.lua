-- command/new.lua - `luaserve new`: writes a template of lua/templates/ into a new folder, and the definitions for the
-- editor.
-- `luaserve new --definitions` writes the definitions alone, into the folder of a site that exists.
--
-- The files of templates/common and of templates/NAME go to the folder; "dot_" at the beginning of a name becomes a dot,
-- and @NAME@ in a text the name of the folder. Of two files x.sqlite.lua and x.dict.lua the one that this program can run
-- becomes x.lua. definitions/ goes to .luaserve/, which .luarc.json names.

local command = require "luaserve.command"

local new = {}

new.spec = {
  name = "new",
  usage = { "DIR [--template NAME]", "--definitions DIR" },
  about = [[
Makes the folder DIR with a site, its tests, a README and settings for editors. An existing folder must be empty; .git may
be in it. With --definitions it is the folder of a site.]],
  options = {
    { "--definitions", nil, [[write only the definitions for editors into DIR/.luaserve, in place of those of another
      version, and DIR/.luarc.json if it does not exist]] },
    { "--template NAME", command.matching(".", "the name of a template"), [[web, the default: pages, a login, forms and an
      upload; api: a JSON API with tokens, validation and pages; chat: rooms over WebSocket, with their page; tcp: a line
      protocol]] },
    command.help_option,
  },
}

local function fail(format, ...) error({ message = string.format(format, ...) }, 0) end

-- The names of the templates, as keys and in order.
local function templates_of(files)
  local names, list = { common = true }, {}
  for _, file in ipairs(files) do
    local name = file.path:match("^templates/([^/]+)/")
    if name and not names[name] then names[name], list[#list + 1] = true, name end
  end
  names.common = nil
  table.sort(list)
  return names, list
end

-- The folder must not exist, or be empty.
local function check_folder(program, folder)
  local kind = program.kind(folder)
  if kind == "file" then fail("%s is a file; give the name of a new folder", folder) end
  if kind == nil then return end
  local entries, why = program.list(folder)
  if not entries then fail("cannot read %s: %s", folder, why) end
  for _, entry in ipairs(entries) do
    if entry.name ~= ".git" then
      fail("the folder %s is not empty: it contains %s; give a new or an empty folder", folder, entry.name)
    end
  end
end

local function make_parents(program, path)
  for at in path:gmatch("().[/\\]") do
    local parent = path:sub(1, at)
    if program.kind(parent) ~= "folder" then
      local made, why = program.make_folder(parent)
      if not made and program.kind(parent) ~= "folder" then fail("cannot make the folder %s: %s", parent, why) end
    end
  end
end

-- The path below the folder of a file of lua/; nil: it is not written. store: "sqlite" or "dict". Without a template: the
-- definitions, and the settings that name them.
local function place_of(path, template, store)
  local from, name = path:match("^templates/([^/]+)/(.*)$")
  if template and (from == "common" or from == template) or path == "templates/common/dot_luarc.json" then
    local kind = name:match("%.(%l+)%.lua$")
    if kind and kind ~= store then return nil end
    return (("/" .. name:gsub("%.%l+%.lua$", ".lua")):gsub("/dot_([^/]*)$", "/.%1"):sub(2))
  end
  return path:match("^definitions/(.*)$") and path:gsub("^definitions/", ".luaserve/") or nil
end

-- Write a file that is not there, or, without a template, one of the definitions in place of the old one. Returns whether
-- it was written.
local function write(program, path, bytes, template)
  if not template then
    local there = program.kind(path)
    if there and path:find("%.luarc%.json$") then return false end
    if there then os.remove(path) end
  end
  local written, why = program.write_new(path, bytes)
  if not written then fail("cannot write %s: %s", path, why) end
  return true
end

local function write_all(program, folder, template, files)
  local name = folder:gsub("[/\\]+$", ""):match("[^/\\]*$")
  if name == "" or name == "." or name == ".." then name = "site" end
  local store = program.build():find("SQLite: not built in", 1, true) and "dict" or "sqlite"
  for _, file in ipairs(files) do
    local place = place_of(file.path, template, store)
    if place then
      local path = folder .. "/" .. place
      make_parents(program, path)
      local bytes = file.bytes:gsub("@NAME@", (name:gsub("%%", "%%%%")))
      if write(program, path, bytes, template) then io.stdout:write("  ", path, "\n") end
    end
  end
  if not template then return end
  io.stdout:write("\nNext:\n  cd ", folder, "\n  luaserve test\n  luaserve dev site.lua\n")
end

-- run(program, arguments) -> the exit status
function new.run(program, arguments)
  local values, words = command.parse(new.spec, arguments)
  if not values then return command.fail(new.spec, words) end
  if values.help then return command.help(new.spec) end
  local folder = words[1]
  if not folder or folder == "" then
    return command.fail(new.spec, "no folder given; usage: luaserve new " .. new.spec.usage[1])
  elseif words[2] then
    return command.fail(new.spec, string.format("two folders given, %s and %s; give one", folder, words[2]))
  end
  local files = program.files()
  local names, list = templates_of(files)
  local template = values.template or "web"
  if values.definitions and values.template then
    return command.fail(new.spec, "--definitions writes no template; leave out --template")
  elseif values.definitions and program.kind(folder) ~= "folder" then
    return command.fail(new.spec, string.format("%s is not a folder; give the folder of a site", folder))
  elseif not names[template] then
    local near = command.suggest(template, names)
    return command.fail(new.spec, string.format('unknown template "%s"; the templates are %s%s', template,
      table.concat(list, ", "), near and "; did you mean " .. near .. "?" or ""))
  end
  local good, why = pcall(function()
    if not values.definitions then check_folder(program, folder) end
    write_all(program, folder, not values.definitions and template, files)
  end)
  if good then return 0 end
  return command.fail(new.spec, type(why) == "table" and why.message or why, 1)
end

return new
