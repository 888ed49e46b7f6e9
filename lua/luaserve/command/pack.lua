-- command/pack.lua - `luaserve pack`: writes one executable with the program, a site and its files; and what a packed program
-- prints for --packed. src/port/file/image.h describes the form: a ZIP archive after the program.
--
-- The site is loaded as with --check, which tells its modules and folders; the texts of the modules tell which others a
-- handler requires. All paths below are absolute; names are those inside, below the folder of the site. The same input
-- gives the same bytes: names are sorted, and no time is written.

local command = require "luaserve.command"

local pack = {}

pack.spec = {
  name = "pack",
  title = "one executable with luaserve, a site and its files",
  usage = { "site.lua [files and folders...] -o FILE [-- arguments of the site...]" },
  about = [[
Loads the site, with these arguments, as --check does. Inside are the site, the modules that it requires, the folders of
ls.templates and app:static, and the files and folders of the command line; of folders, the names that begin with a dot,
and links that lead out of the folder, are left out. Files of app:static get compressed forms.]],
  options = {
    { "-o, --output FILE", command.file, "the program to write", once = true },
    { "--target PROGRAM", command.file, "the luaserve to pack onto, such as luaserve.exe (default: this program)" },
    { "--without NAME", command.matching(".", "a file, a folder or a module"),
      [[leave out a file or a folder, or a module that is not found; "plug." means all modules whose names begin so; may be
    repeated]], many = "names left out" },
    command.help_option,
  },
  notes = [[
The program looks for its files inside first, then in the folder that it lies in, which is ls.dir, and the place for what the
site writes. FILE --help lists its options.]],
}

local levels_max = 32
local slot_bytes = 64 -- of image.h
local archive_max = 2 ^ 32 - 1 | 0 -- its numbers have 4 bytes
local aligned_min = 32768 -- bytes: larger files are sent from the file (shared_file.h)
local page = 4096
local form_min, form_share = 256, 0.9 -- bytes of a file that gets compressed forms; their share of it, at most
local made, coded = 1, 2 -- flags of image.h
local built_in = { cjson = true, ["cjson.safe"] = true }

local function fail(format, ...) error({ message = string.format(format, ...) }, 0) end

local noted = {}

local function note(format, ...) -- once each
  local line = string.format(format, ...)
  if not noted[line] then io.stderr:write("luaserve pack: ", line, "\n") end
  noted[line] = true
end

-- ---- paths -----------------------------------------------------------------------------------------------------------

local windows = package.config:sub(1, 1) == "\\"
local function slashes(path) return windows and path:gsub("\\", "/") or path end

-- absolute(program, path) -> the absolute path of a file or a folder, and its kind. Raises.
local function absolute(program, path)
  path = slashes(path)
  local kind = program.kind(path)
  if not kind then fail("there is no file or folder %s", path) end
  if kind == "device" then fail("%s is a device, a pipe or a socket, and no file", path) end
  local folder, name = path, nil
  if kind == "file" then folder, name = path:match("^(.-)([^/]*)$") end
  folder = program.pack.real(folder == "" and "." or folder)
  if not folder then fail("there is no folder of %s", path) end
  folder = slashes(folder)
  return name and folder:gsub("/$", "") .. "/" .. name or folder, kind
end

-- The name of an absolute path below the folder; nil: it is not below it.
local function below(folder, path)
  if path == folder then return "" end
  folder = folder:gsub("/$", "") .. "/"
  return path:sub(1, #folder) == folder and path:sub(#folder + 1) or nil
end

-- The absolute path of one that the site gives: it begins at the folder of the site.
local function given_path(program, set, path) return program.is_absolute(path) and path or set.root .. "/" .. path end

local function read(path)
  local file, why = io.open(path, "rb")
  local bytes
  if file then
    local size = file:seek "end" or 0
    if size > archive_max then fail("%s has %d bytes, but an archive %d at most", path, size, archive_max) end
    file:seek "set"
    bytes, why = file:read "a"
    file:close()
  end
  if not bytes then fail("cannot read %s", why:find(path, 1, true) and why or path .. ": " .. why) end
  return bytes
end

-- ---- what is inside --------------------------------------------------------------------------------------------------

-- `set`: root, the folder of the site; entries, by name: { path =, static = whether it gets compressed forms, alone =
-- whether the site or the command line names the file itself, and not only its folder }; without, by names and absolute
-- paths: { name =, used = whether that was found }; private, a list of { path, name }: what the site uses on the disk;
-- fences, the folders that links must not leave; output, the packed program that will be replaced, or nil; scanned, by
-- path: the Lua files whose calls were added; computed, the calls with computed names; named, the calls that read files.

-- Whether --without names one of these: paths, names inside or names of modules.
local function leaves_out(set, ...)
  local found = false
  for _, key in ipairs { ... } do
    local one = set.without[key]
    if one then one.used, found = true, true end
  end
  return found
end

-- of: "static" or "folder", or nil, a file by itself
local function add(set, name, path, of)
  if leaves_out(set, path, name) or path == set.output then return end
  local entry = set.entries[name]
  if entry and entry.path ~= path then fail("two files have the name %s inside: %s and %s", name, entry.path, path) end
  entry = entry or { path = path }
  entry.static, entry.alone = entry.static or of == "static", entry.alone or not of
  set.entries[name] = entry
end

-- Whether a link in the path leads out of a folder that is packed.
local function leads_out(program, set, path)
  for _, fence in ipairs(set.fences) do
    if below(fence, path) and not program.pack.beneath(fence, path) then return true end
  end
  return false
end

-- Add a folder. `above`: the folders that it lies in, without links.
local function add_folder(program, set, name, path, of, above)
  if leaves_out(set, path, name) then return end
  local real = program.pack.real(path) or path
  if above[real] then return note("%s is a link to a folder that it lies in: it is not inside", name) end
  if #above == levels_max then fail("%s: more than %d folders in each other", path, levels_max) end
  local names, why = program.list(path)
  if not names then fail("cannot read the folder %s: %s", path, why) end
  table.sort(names, function(a, b) return a.name < b.name end)
  above[real], above[#above + 1] = true, real
  for _, entry in ipairs(names) do
    local inner = path:gsub("/$", "") .. "/" .. entry.name
    local inner_name = (name ~= "" and name .. "/" or "") .. entry.name
    if not leaves_out(set, inner, inner_name) and entry.name:sub(1, 1) ~= "." then
      local kind = program.kind(inner)
      if not kind or leads_out(program, set, inner) then
        note("%s is a link that leads %s: it is not inside", inner_name, kind and "out of its folder" or "nowhere")
      elseif kind == "folder" then
        add_folder(program, set, inner_name, inner, of, above)
      elseif kind == "file" then
        add(set, inner_name, inner, of)
      else
        note("%s is a device, a pipe or a socket: it is not inside", inner_name)
      end
    end
  end
  above[real], above[#above] = nil, nil
end

-- Add a file or a folder of the command line.
local function add_word(program, set, word)
  local path, kind = absolute(program, word)
  local inside = below(set.root, path)
  local name = inside or path:match("[^/]*$")
  if not inside then note("%s is outside of the folder of the site: its name inside is %s", word, name) end
  if kind == "file" then return add(set, name, path) end
  set.fences[#set.fences + 1] = path
  add_folder(program, set, name, path, "folder", {})
end

-- Add a folder of ls.templates or app:static.
local function add_site_folder(program, set, call, given, of)
  local path = absolute(program, given_path(program, set, given))
  local name = below(set.root, path)
  if not name then return note("%s of %s is outside of the folder of the site: it is not inside", given, call) end
  set.fences[#set.fences + 1] = path
  add_folder(program, set, name, path, of, {})
end

-- The argument of a call at text[at]: its text; false: the call computes it, and the text with which it begins; nil: this is no
-- call. `first`: whether the function itself is the first argument, as in pcall(require, "name").
local function argument(text, at, first)
  local before, begin = text:match(first and "^%s*(,)%s*()" or "^%s*(%(?)%s*()", at)
  if not before then return nil end
  local quote, name, after = text:match("^([\"'])([^\"'\\\n]*)%1%s*(.?.?)", begin)
  if quote and (after ~= ".." or before == "") then return name end
  if quote then return false, name end
  if before ~= "" and text:find("^[%w_(.]", begin) then return false, "" end
end

local loads = { require = true, dofile = true, loadfile = true }
local reads = { file = { read = true, lines = true, stat = true, list = true }, io = { open = true, lines = true } }

-- The name of a call that reads a file, such as "ls.file.read" or "res:file", by its last tokens and the text after it; or nil.
local function reading(earlier, before, token, rest)
  if before == ":" and token == "file" then return earlier .. ":file" end
  if before ~= "." or not (reads[earlier] and reads[earlier][token]) then return nil end
  if earlier == "file" then return "ls.file." .. token end
  return not rest:find("^%s*%([^(),]*,%s*[\"'][wa]") and "io." .. token or nil
end

-- calls(text) -> list of { call =, name =, computed = whether it is only the first part of the name, line =, optional = whether it
-- is called by pcall, reads = whether it reads a file }: the calls of require, dofile, loadfile and of functions that read files in
-- a text of Lua
local function calls(text)
  local found, at, line, before, earlier = {}, 1, 1, "", ""
  while at <= #text do
    local equals = text:match("^%-%-%[(=*)%[", at) or text:match("^%[(=*)%[", at)
    local quote = text:match("^[\"']", at)
    local stop, token
    if equals then
      stop = select(2, text:find("]" .. equals .. "]", at, true)) or #text
    elseif text:find("^%-%-", at) then
      stop = (text:find("\n", at, true) or #text + 1) - 1
    elseif quote then
      stop = at + 1
      while stop < #text and text:sub(stop, stop) ~= quote do stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1) end
    else
      stop = select(2, text:find("^[%a_][%w_]*", at)) or select(2, text:find("^%.%.+", at)) or at
      token = text:sub(at, stop)
      if loads[token] and before ~= "." and before ~= ":" and before ~= "function" then
        local optional = before == "(" and (earlier == "pcall" or earlier == "xpcall")
        local name, start = argument(text, stop + 1, optional)
        if name ~= nil then
          found[#found + 1] = { call = token, name = name or start, computed = name == false, line = line, optional = optional }
        end
      elseif before == "." or before == ":" then
        local call = reading(earlier, before, token, text:sub(stop + 1, stop + 200))
        local name = call and argument(text, stop + 1)
        if name then found[#found + 1] = { call = call, name = name, line = line, reads = true } end
      end
      if not token:find("%s") then before, earlier = token, before end
    end
    line = line + select(2, text:sub(at, stop):gsub("\n", ""))
    at = stop + 1
  end
  return found
end

local add_module, add_called -- they call each other

-- The file of a path of dofile or loadfile: in the folder of the site, or absolute.
local function add_file(program, set, modules, shown, one)
  local own = given_path(program, set, one.name)
  local file = program.kind(own) == "file" and absolute(program, own)
  local name = file and below(set.root, file)
  if leaves_out(set, one.name) or name and set.entries[name] then return end
  if not name then
    return note("%s:%d loads the file %s, which is not in the folder of the site: it is not inside", shown, one.line, one.name)
  end
  add(set, name, file)
  add_called(program, set, modules, file)
end

-- Add the modules and files that the text of a file loads, and those that these load.
function add_called(program, set, modules, path)
  local shown = below(set.root, path) or path
  if set.scanned[path] then return end
  set.scanned[path] = true
  for _, one in ipairs(calls(read(path))) do
    local name = one.name
    one.shown = shown
    if one.reads then
      set.named[#set.named + 1] = one
    elseif one.computed then
      set.computed[#set.computed + 1] = one
    elseif one.call ~= "require" then
      add_file(program, set, modules, shown, one)
    elseif not modules[name] and not built_in[name] and not package.preload[name] and not leaves_out(set, name) then
      modules[name] = true
      local root = set.root:gsub("/$", "")
      local file = package.searchpath(name, root .. "/?.lua;" .. root .. "/?/init.lua;" .. package.path)
      if file then
        add_module(program, set, modules, name, file)
      elseif package.searchpath(name, package.cpath) then
        note("the module %s, which %s:%d requires, is a library in C: it is not inside", name, shown, one.line)
      elseif one.optional then
        note("the module %s, which %s:%d requires by pcall, is not found: it is not inside", name, shown, one.line)
      elseif not package.loaded[name] then
        fail("%s:%d requires the module %s, which is not in %s nor in the folders of LUA_PATH: add it, or leave it out with "
          .. "--without %s", shown, one.line, name, set.root, name)
      end
    end
  end
end

-- Add the modules whose names are computed, when the command line has their folder; else refuse or report the place.
local function add_computed(program, set, modules)
  local at = 1
  while set.computed[at] do
    local one = set.computed[at]
    local folder = one.call == "require" and one.name:gsub("%.", "/") or one.name
    local inside = {}
    for name, entry in pairs(set.entries) do
      if folder ~= "" and name:sub(1, #folder) == folder and name:find("%.lua$") then inside[#inside + 1] = entry.path end
    end
    table.sort(inside)
    for _, path in ipairs(inside) do add_called(program, set, modules, path) end
    local known = leaves_out(set, one.name) or #inside > 0
    if not known and one.call == "require" and one.name ~= "" then
      fail("%s:%d requires modules whose names begin with %s: name their folder, %s, on the command line, or leave them out with "
        .. "--without %s", one.shown, one.line, one.name, folder:match("^(.-)/?[^/]*$"), one.name)
    elseif not known then
      note("%s:%d: the argument of %s is computed: name the files that it loads later on the command line", one.shown,
        one.line, one.call)
    end
    at = at + 1
  end
end

-- Whether a file or a folder is inside, or left out.
local function is_inside(set, kind, name)
  local found = set.entries[name] ~= nil
  for entry in pairs(set.entries) do found = found or kind == "folder" and below(name, entry) ~= nil end
  return leaves_out(set, name) or found
end

-- Report the files that handlers read and that are only on this disk: the program does not find them in another folder.
local function note_named(program, set)
  local opened = {} -- while the site loads: reported as well
  for _, one in ipairs(set.read) do opened[one[1]] = one[2] == "opened" end
  for _, one in ipairs(set.named) do
    local own = given_path(program, set, one.name)
    local kind, by_lua = program.kind(own), one.call:find("^io%.")
    local name = (kind == "file" or kind == "folder") and below(set.root, absolute(program, own))
    if name and by_lua and not opened[one.name] and not leaves_out(set, name) then
      note("%s:%d: %s opens %s, on the disk only: use ls.file.read, or put it beside the program", one.shown, one.line,
        one.call, one.name)
    elseif name and not by_lua and not is_inside(set, kind, name) then
      set.named[one.name] = true
      note("%s:%d: %s reads %s, which is not inside: name it on the command line, put it beside the program, or leave it "
        .. "out with --without %s", one.shown, one.line, one.call, one.name, one.name)
    end
  end
end

-- A module outside of the folder of the site gets the name at which `require` finds it.
function add_module(program, set, modules, name, file)
  local path = absolute(program, file)
  modules[name] = true
  if leaves_out(set, name) then return end
  add(set, below(set.root, path) or name:gsub("%.", "/") .. ".lua", path)
  add_called(program, set, modules, path)
end

-- Add what the site has loaded: the lines of description.files.
local function add_loaded(program, set, modules, lines)
  local list, views = {}, {}
  for kind, path, name in lines:gmatch("(%l+)\t([^\t\n]*)\t([^\n]*)\n") do
    path = slashes(path)
    if kind == "module" or kind == "library" then modules[name] = true end
    if kind == "module" and set.without[name] then set.without[absolute(program, path)] = set.without[name] end
    if kind == "views" then views[#views + 1] = path .. "/" end
    if kind == "private" then
      set.private[#set.private + 1] = { program.pack.real(path) or path, name }
    else
      list[#list + 1] = { kind, path, name }
    end
  end
  table.sort(list, function(a, b) return a[1] .. "\t" .. a[2] < b[1] .. "\t" .. b[2] end)
  for _, one in ipairs(list) do
    local kind, path, name = one[1], one[2], one[3]
    local of_view = false
    for _, folder in ipairs(views) do of_view = of_view or path:sub(1, #folder) == folder end
    if kind == "module" then
      add_module(program, set, modules, name, path)
    elseif kind == "file" and not of_view then
      local file = absolute(program, path)
      local inside = below(set.root, file)
      if not inside then fail("the site loads %s, which is outside of its folder, %s", path, set.root) end
      add(set, inside, file)
      add_called(program, set, modules, file)
    elseif kind == "library" and not built_in[name] then
      note("the module %s is a library in C, %s: it is not inside", name, path)
    elseif kind == "static" or kind == "views" then
      add_site_folder(program, set, kind == "static" and "app:static" or "ls.templates", path,
        kind == "static" and "static" or "folder")
    elseif kind == "read" and not of_view or kind == "opened" then
      set.read[#set.read + 1] = { path, kind }
    end
  end
  add_called(program, set, modules, set.site)
end

-- ---- the archive -----------------------------------------------------------------------------------------------------

-- Refuse what would be secret, or is written: all who have the program can read it, and it stays as it is.
local function check_private(program, set, name, entry)
  local path = entry.path
  for _, one in ipairs(set.private) do
    for _, file in ipairs { path, path:gsub("%-[wsj]%l+$", ""), program.pack.real(path) } do -- site.db-wal is of site.db
      if type(file) == "string" and below(one[1], file) then
        fail("%s is %s, which the site uses on the disk: leave it out with --without %s, or move it to another place", name,
          one[2], name)
      end
    end
  end
  local bytes = read(path)
  local key = "%-%-%-%-%-BEGIN [%u ]*PRIVATE KEY%-%-%-%-%-"
  if not entry.alone and (bytes:find("^" .. key) or bytes:find("\n" .. key)) then
    fail("%s is a private key, which all who have the program could read: leave it out with --without %s, or move it to another "
      .. "place; to have it inside, name the file on the command line", name, name)
  end
  if bytes:sub(1, 16) == "SQLite format 3\0" then note("%s is a database; ls.sqlite opens files of the disk only", name) end
  return bytes
end

-- files_of(program, set) -> sorted list of { name, bytes, flags }, with the compressed forms
local function files_of(program, set)
  local files = {}
  for name, entry in pairs(set.entries) do
    local bytes = check_private(program, set, name, entry)
    local file = { name, bytes, (set.entries[name .. ".gz"] or set.entries[name .. ".br"]) and coded or 0 }
    files[#files + 1] = file
    if entry.static and #bytes >= form_min and not name:find("%.gz$") and not name:find("%.br$") then
      for _, coding in ipairs { "gzip", "br" } do
        local form_name = name .. (coding == "br" and ".br" or ".gz")
        local form = not set.entries[form_name] and program.pack.encode(coding, bytes)
        if form and #form > form_share * #bytes then break end -- br is slow, and does not gain much more
        if form then
          files[#files + 1] = { form_name, form, made }
          file[3] = coded
        end
      end
    end
  end
  table.sort(files, function(a, b) return a[1] < b[1] end)
  return files
end

-- archive(program, files, at, site) -> list of strings, the place of the directory. `at`: the bytes before the archive.
local function archive(program, files, at, site)
  local out, directory, size = {}, {}, 0
  local utf8_names, day = 0x800, 0x21 -- 1980-01-01, the first
  for _, file in ipairs(files) do
    local name, bytes, flags = file[1], file[2], file[3]
    local begin, crc, tag = at, program.pack.crc(bytes), program.pack.sum(0, bytes)
    local padding = ""
    if #bytes > aligned_min then -- field 0xd935: the alignment, and zeros
      local zeros = -(at + 30 + #name + 6) % page
      padding = string.pack("<I2I2I2", 0xd935, 2 + zeros, page) .. ("\0"):rep(zeros)
    end
    local head = string.pack("<I4I2I2I2I2I2I4I4I4I2I2", 0x04034b50, 20, utf8_names, 0, 0, day, crc, #bytes, #bytes, #name, #padding)
      .. name .. padding
    local extra = string.pack("<I2I2i8I8B", 0x736c, 17, tag ~= 0 and tag or 1, at + #head, flags)
    local entry = string.pack("<I4I2I2I2I2I2I2I4I4I4I2I2I2I2I2I4I4", 0x02014b50, 0x314, 20, utf8_names, 0, 0, day, crc, #bytes,
      #bytes, #name, #extra, 0, 0, 0, 0x81a40000, begin) .. name .. extra
    at, size = at + #head + #bytes, size + #entry
    if at + size > archive_max then fail("the files have more than 4 GiB") end
    out[#out + 1], out[#out + 2], directory[#directory + 1] = head, bytes, entry
  end
  if #files > 65534 then fail("%d files; an archive has 65534 at most", #files) end
  directory[#directory + 1] = string.pack("<I4I2I2I2I2I4I4s2", 0x06054b50, 0, 0, #files, #files, size, at, site)
  table.move(directory, 1, #directory, #out + 1, out)
  return out, at
end

-- write(program, output, target, files, site) -> the bytes written
local function write(program, output, target, files, site)
  local own, mark = read(target), program.pack.mark()
  local place = own:find(mark, 1, true)
  if not place or own:find(mark, place + 1, true) then fail("%s is not a luaserve onto which files can be packed", target) end
  if own:sub(place + #mark, place + slot_bytes - 1):find("[^\0]") then fail("%s is packed already: give a luaserve", target) end
  local parts, directory = archive(program, files, #own, site)
  local head = own:sub(1, place - 1)
  local rest = own:sub(place + slot_bytes) .. table.concat(parts)
  local total = place - 1 + slot_bytes + #rest
  local sum = program.pack.sum(program.pack.sum(0, head), rest)
  local numbers = string.pack("<I8I8I8i8", place - 1, directory, total, sum)
  local saved, why = program.pack.save(output, { head, mark, numbers, rest })
  if not saved then fail("cannot write %s, of %d bytes: %s", output, total, why) end
  return total
end

-- ---- the commands ----------------------------------------------------------------------------------------------------

-- The absolute path of the output if it exists; nil: it does not. Raises when it is a file that luaserve pack has not written.
local function check_output(program, output)
  local kind = program.kind(output)
  local folder = output:match(windows and "^(.*)[/\\]" or "^(.*)/")
  if kind == "folder" then fail("the output, %s, is a folder: add the name of a file", output) end
  if folder and folder ~= "" and not program.kind(folder) then
    fail("cannot write %s: there is no folder %s; make it first", output, folder)
  end
  if kind ~= "file" then return nil end
  local bytes, mark = read(output), program.pack.mark()
  local place = bytes:find(mark, 1, true)
  if bytes ~= "" and not (place and bytes:sub(place + #mark, place + slot_bytes - 1):find("[^\0]")) then
    fail("the output, %s, exists and is no packed program: give it another name, or remove that file", output)
  end
  local real = program.pack.real(output)
  return real and slashes(real) or absolute(program, output)
end

local function check_site(program, site)
  if program.kind(site) ~= "folder" then return end
  local inner = (site:gsub("/$", "") .. "/site.lua"):gsub("^%./", "")
  fail("%s is a folder: give the file of the site%s", site, program.kind(inner) == "file" and ", such as " .. inner or "")
end

-- Take the names of --without: of paths as they are from here, of names inside, and of modules.
local function take_without(program, set, names)
  for _, given in ipairs(names) do
    local one = { name = given }
    set.without[given:gsub("^%./", ""):gsub("/$", "")] = one
    local kind = program.kind(given)
    if kind == "file" or kind == "folder" then set.without[absolute(program, given)] = one end
  end
end

local function make(program, values, words, arguments)
  local set = { entries = {}, without = {}, read = {}, private = {}, fences = {}, scanned = {}, computed = {}, named = {} }
  check_site(program, words[1])
  set.output = check_output(program, values.output)
  local lines, why = program.pack.load(words[1], arguments)
  if not lines then fail("%s", why) end
  set.site = absolute(program, words[1])
  set.root = set.site:match("^(.*)/") .. (set.site:find("^[^/]*/[^/]*$") and "/" or "")
  take_without(program, set, values.without or {})
  local site, modules = below(set.root, set.site), {}
  add(set, site, set.site)
  if not set.entries[site] then fail("--without %s: it is the site", site) end
  add_loaded(program, set, modules, lines)
  for n = 2, #words do add_word(program, set, words[n]) end
  add_computed(program, set, modules)
  note_named(program, set)
  for _, one in pairs(set.without) do
    if not one.used then fail("--without %s: no file, folder or module that would be inside has this name", one.name) end
  end
  for _, one in ipairs(set.read) do
    local path, opened = one[1], one[2] == "opened"
    local own = opened and path or given_path(program, set, path)
    local name = program.kind(own) == "file" and below(set.root, absolute(program, own))
    if name and opened then
      note("the site opens %s by io.open, which reads the disk only: use ls.file.read, or put it beside the program", path)
    elseif name and not set.entries[name] and not set.named[path] then
      note("the site reads %s while it loads; it is not inside: name it on the command line, or put it beside the program", path)
    end
  end
  local target = values.target or program.pack.own() or "known by its path"
  if program.kind(target) ~= "file" then fail("--target: there is no program %s", target) end
  local files = files_of(program, set)
  return #files, write(program, values.output, target, files, site)
end

-- run(program, arguments) -> the exit status
function pack.run(program, arguments)
  local values, words, at = command.parse(pack.spec, arguments)
  if not values then return command.fail(pack.spec, words) end
  if values.help then return command.help(pack.spec) end
  local usage = "; usage: luaserve pack " .. pack.spec.usage[1]
  if not words[1] then return command.fail(pack.spec, "no site given" .. usage) end
  if not values.output then return command.fail(pack.spec, "no output given" .. usage) end
  local good, count, bytes = pcall(make, program, values, words, table.move(arguments, at, #arguments, 1, {}))
  if not good then return command.fail(pack.spec, type(count) == "table" and count.message or count, 1) end
  io.stdout:write(string.format("%s: %d files inside, %d bytes\n", values.output, count, bytes))
  return 0
end

-- list(program) -> 0; prints the files in this program: bytes, tag, media type, name.
function pack.list(program)
  for _, file in ipairs(program.pack.inside()) do
    local type = program.pack.type(file.made and file.name:gsub("%.%a+$", "") or file.name)
    io.stdout:write(string.format("%10d  %016x  %-30s  %s%s\n", file.bytes, file.tag, type:gsub(";.*", ""), file.name,
      file.made and " (made by luaserve pack)" or ""))
  end
  return 0
end

return pack
