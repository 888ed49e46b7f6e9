-- run_lua embed.lua modules|files OUT FOLDER[,FOLDER...] NAME,... [PAGE_FOLDERS] - while luaserve is built
-- Writes a C file with the bytes of the files and a table of them: of modules, their bytecode, ls_lua_modules
-- (src/script/core/lua/lua_modules.h); of other files, ls_embedded_files (src/cli/embedded.h). A file is in the first folder
-- that has it. With PAGE_FOLDERS also the pages, which share head.html, draw.css and draw.js: ls_stress_page
-- (src/stress/engine.h), and the modules luaserve.status_page and luaserve.openapi_page, strings.
local kind, path, folders, names, page_folders = arg[1], arg[2], arg[3], arg[4], arg[5]

local function read(name, where)
  for folder in where:gmatch("[^,]+") do
    local file = io.open(folder .. "/" .. name, "rb")
    if file then
      local text = file:read("a")
      file:close()
      return text
    end
  end
  error("no file " .. name)
end

local numbers = {}
for byte = 0, 255 do numbers[string.char(byte)] = byte .. "," end

-- The 0 at the end keeps the array of an empty file valid in C; the size excludes it.
local function array(name, text)
  local lines = {}
  for at = 1, #text, 32 do lines[#lines + 1] = text:sub(at, at + 31):gsub(".", numbers) end
  return ("const unsigned char %s[] = {\n%s\n0};\n"):format(name, table.concat(lines, "\n"))
end

local arrays, rows = {}, {}
local function add(name, text)
  if kind == "modules" then
    text = string.dump(assert(load(text, "@" .. name)))
    name = name:gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
  end
  arrays[#arrays + 1] = "static " .. array("bytes_" .. #rows, text)
  rows[#rows + 1] = ('    {"%s", (const char *)bytes_%d, %d},\n'):format(name, #rows, #text)
end
for name in names:gmatch("[^,]+") do add(name, read(name, folders)) end

-- The page `name`: head.html, which takes the lines of NAME.html up to the first empty one, then the other lines. All with what
-- their marks stand for.
local function page_of(name)
  local parts = { STYLE = name .. ".css", SCRIPT = name .. ".js", DRAW = "draw.js", DRAWSTYLE = "draw.css" }
  local head, body = read(name .. ".html", page_folders):match "^(.-\n)\n(.*)$"
  local page = read("head.html", page_folders):gsub("@HEAD@", head) .. body
  return (page:gsub("@(%u+)@", function(part) return parts[part] and read(parts[part], page_folders) end))
end
for name in (page_folders and "status openapi" or ""):gmatch "%a+" do
  add("luaserve/" .. name .. "_page.lua", ("return %q"):format(page_of(name)))
end

local header, table_type = "script/core/lua/lua_modules.h", "ls_lua_module ls_lua_modules"
if kind == "files" then header, table_type = "cli/embedded.h", "ls_embedded_file ls_embedded_files" end
local out = assert(io.open(path, "wb"))
out:write('/* Made by lua/embed.lua. */\n#include "', header, '"\n\n', table.concat(arrays, "\n"), "\nconst ", table_type,
  "[] = {\n", table.concat(rows), "    {NULL, NULL, 0},\n};\n")
if kind == "modules" then out:write("const size_t ls_lua_modules_count = ", #rows, ";\n") end
if page_folders then
  local page = page_of "report"
  out:write('\n#include "stress/engine.h"\n\n', array("ls_stress_page", page), "const size_t ls_stress_page_len = ", #page, ";\n")
end
assert(out:close())
