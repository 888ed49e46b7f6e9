-- run_lua embed.lua modules|files OUT FOLDER[,FOLDER...] NAME,... - while luaserve is built
-- Writes a C file with the bytes of the files and a table of them: of modules, ls_lua_modules
-- (src/script/core/lua/lua_modules.h); of other files, ls_embedded_files (src/cli/embedded.h). A file is in the first folder
-- that has it.
local kind, path, folders, names = arg[1], arg[2], arg[3], arg[4]

local function read(name)
  for folder in folders:gmatch("[^,]+") do
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

local arrays, rows = {}, {}
for name in names:gmatch("[^,]+") do
  local text, lines = read(name), {}
  for at = 1, #text, 32 do lines[#lines + 1] = text:sub(at, at + 31):gsub(".", numbers) end
  if kind == "modules" then name = name:gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".") end
  -- The 0 at the end keeps the array of an empty file valid in C; the size excludes it.
  arrays[#arrays + 1] = ("static const unsigned char bytes_%d[] = {\n%s\n0};\n"):format(#rows, table.concat(lines, "\n"))
  rows[#rows + 1] = ('    {"%s", (const char *)bytes_%d, %d},\n'):format(name, #rows, #text)
end

local header, table_type = "script/core/lua/lua_modules.h", "ls_lua_module ls_lua_modules"
if kind == "files" then header, table_type = "cli/embedded.h", "ls_embedded_file ls_embedded_files" end
local out = assert(io.open(path, "wb"))
out:write('/* Made by lua/embed.lua. */\n#include "', header, '"\n\n', table.concat(arrays, "\n"), "\nconst ", table_type,
  "[] = {\n", table.concat(rows), "    {NULL, NULL, 0},\n};\n")
if kind == "modules" then out:write("const size_t ls_lua_modules_count = ", #rows, ";\n") end
assert(out:close())
