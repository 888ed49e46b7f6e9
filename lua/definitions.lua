-- definitions.lua - makes the definitions of luaserve for editors with the Lua language server, from the comments of the
-- sources. The build runs it: definitions.lua OUT_DIR ROOT LIST_FILE, which has the paths of the sources from ROOT.
--
-- A comment of C or Lua documents what Lua can reach in lines of these forms; a text in plain words follows each, up to
-- the next one or the end of the comment:
--
--     sock is a Sock: a TCP or Unix connection.
--     sock:receiveany([max: integer]) -> data: string|Buffer | nil, message, code. The bytes that are available.
--     sock.remote: string? - address and port of the peer
--     sock[string]: any - what the site assigns          and the operators  #sock: integer  and  sock .. string: string
--     csrf is a Csrf: middleware, `require "luaserve.csrf"`.              a module that is called: csrf(options)
--     type Headers: table<string, string> - header fields
--
-- The name before the colon stands for its class in the whole tree; `options`, `event`, `info` and `result` for one
-- comment. Results are alternatives between " | ". A type may be left out where `usual` or a class has the name. Types with
-- a capital are those of luaserve. Names that begin with "core." are not documented: a site does not see them.
--
-- Tables of options (lua/luaserve/options.lua) give further classes: the line of `calls` names the class, the comments
-- after the options describe them. The counters of ls.stats are those of the reference.

local definitions = {}

local usual = { -- types of names
  message = "string", code = "Code", name = "string", text = "string", topic = "string", path = "string", host = "string",
  pattern = "string", port = "integer", max = "integer", seconds = "number", timeout = "number", ttl = "number",
  sql = "string", key = "string|integer", value = "any", data = "Data", status = "integer",
  note = "string", got = "any", expected = "any",
}
local scoped = { options = true, event = true, info = true, result = true } -- names whose class is that of their comment

-- ---- reading -------------------------------------------------------------------------------------------------------

-- The comments of a source, as lists of lines.
local function comments_of(text, is_c)
  local list, current = {}, nil
  if is_c then
    for body in text:gmatch("/%*(.-)%*/") do
      local lines = {}
      for line in (body .. "\n"):gmatch("([^\n]*)\n") do lines[#lines + 1] = line:gsub("^%s*%*? ?", ""):gsub("%s+$", "") end
      list[#list + 1] = lines
    end
    return list
  end
  for line in (text .. "\n"):gmatch("([^\n]*)\n") do
    local comment = line:match("^%s*%-%- ?(.*)$")
    if not comment then
      current = nil
    else
      if not current then
        current = {}
        list[#list + 1] = current
      end
      current[#current + 1] = comment
    end
  end
  return list
end

-- The end of the part of `text` from `from` on, up to the first of the Lua patterns `stops` outside of brackets and
-- quotes.
function definitions.part_end(text, from, stops)
  local depth, at = 0, from
  while true do
    local bracket = text:find('["%(<{%[%)>}%]]', at)
    local first = (bracket or #text) + 1
    for _, stop in ipairs(depth == 0 and stops or {}) do first = math.min(first, text:find(stop, at) or first) end
    if not bracket or first <= bracket then return first - 1 end
    local c = text:sub(bracket, bracket)
    if c == '"' then
      bracket = text:find('"', bracket + 1, true) or error("a quote without end: " .. text, 0)
    else
      depth = depth + (c:find("[%(<{%[]") and 1 or -1)
    end
    at = bracket + 1
  end
end

-- split(text, separator) -> the parts between the separators, a Lua pattern without captures.
function definitions.split(text, separator)
  local list, at = {}, 1
  while at <= #text do
    local stop = definitions.part_end(text, at, { separator })
    list[#list + 1] = text:sub(at, stop)
    local _, over = text:find("^" .. separator, stop + 1)
    at = (over or #text) + 1
  end
  return list
end

local part_end, split = definitions.part_end, definitions.split
local model -- { classes = by name, order = their names, prefixes =, types = list of aliases }

local function class_named(name)
  local class = model.classes[name]
  if not class then
    class = { name = name, fields = {}, functions = {}, more = {}, named = {} }
    model.classes[name] = class
    model.order[#model.order + 1] = name
  end
  return class
end

local function add(class, list, entry)
  if class.named[entry.name] then error(class.name .. "." .. entry.name .. " is documented twice", 0) end
  class.named[entry.name] = entry
  list[#list + 1] = entry
  return entry
end

-- The parameters: "fd: integer, events: string [, options: NotifyOptions]".
local function parameters_of(text, prefixes)
  local list, optional, at = {}, false, 1
  while true do
    local open, after = text:match("^[ ,]*(%[?)[ ,]*()", at)
    optional = optional or open == "["
    at = after
    if at > #text or text:find("^%]", at) then break end
    local name, colon, next_at = text:match("^([%w_]+)(:? ?)()", at)
    if not name then name, colon, next_at = text:match("^(%.%.%.)(:? ?)()", at) end
    if not name then error("no parameter at " .. text:sub(at) .. " of " .. text, 0) end
    local stop = part_end(text, next_at, { ",", " %[", "%]", "%[[^%]]" })
    local kind = colon ~= "" and colon ~= " " and text:sub(next_at, stop) or usual[name] or prefixes[name]
    if not kind and name == "..." then kind = "any" end
    if not kind then error("no type of " .. name .. " in " .. text, 0) end
    list[#list + 1] = { name = name, kind = kind, optional = optional and name ~= "..." }
    at = (colon ~= "" and stop or next_at - 1) + 1
    while text:find("^%]", at) do at = at + 1 end
  end
  return list
end

-- One result: "data: string", `true`, a usual name, the name of an object, or a type.
local function result_of(text, prefixes)
  local name, kind = text:match("^([%w_.]+): (.+)$")
  if name then return { name = name, kind = kind } end
  if text == "true" then return { name = "ok", kind = "true" } end
  if text == "nil" then return { kind = "nil" } end
  if usual[text] then return { name = text, kind = usual[text] } end
  if prefixes[text] then return { name = text, kind = prefixes[text] } end
  return { kind = text }
end

-- The results of all alternatives: a list of { name, kind }.
local function results_of(text, prefixes)
  local list, alternatives = {}, split(text, " | ")
  for i, alternative in ipairs(alternatives) do
    local items = split(alternative, ", ")
    if items[2] and items[1]:find("fun%b(): ") then items = { alternative } end -- the results of the function
    alternatives[i] = items
  end
  for i, alternative in ipairs(alternatives) do
    for n, item in ipairs(alternative) do
      local result, merged = result_of(item, prefixes), list[n] or { kinds = {}, names = {} }
      list[n] = merged
      if result.kind == "nil" then
        merged.optional = true
      elseif not merged.kinds[result.kind] then
        merged.kinds[result.kind] = true
        merged.kinds[#merged.kinds + 1] = result.kind
      end
      if result.name and not merged.names[result.name] then
        merged.names[result.name] = true
        merged.names[#merged.names + 1] = result.name
      end
      if n > #alternatives[1] and i > 1 then merged.optional = true end
    end
  end
  for n, merged in ipairs(list) do
    for _, alternative in ipairs(alternatives) do merged.optional = merged.optional or #alternative < n end
    local kind = table.concat(merged.kinds, "|")
    if merged.optional and kind ~= "" and kind ~= "any" and not kind:find("%?$") and not kind:find("nil$") then
      kind = kind:find("|") and kind .. "|nil" or kind:find("^fun") and "(" .. kind .. ")?" or kind .. "?"
    end
    list[n] = { name = table.concat(merged.names, "_or_"), kind = kind ~= "" and kind or "nil" }
  end
  return list
end

-- The classes that the names of this comment stand for.
local function prefixes_of(lines)
  local own = {}
  for _, line in ipairs(lines) do
    local name, class = line:match("^(%l[%w_.]*) is an? (%u%w*): ")
    if name and scoped[name] then own[name] = class end
  end
  return setmetatable(own, { __index = model.prefixes })
end

-- The entry that begins with this text, and the text after it; nil: none.
local function entry_of(text, prefixes)
  local name, class_name, rest = text:match("^(%l[%w_.]*) is an? (%u%w*): (.*)$")
  if name then
    local class = class_named(class_name)
    class.variable = class.variable or name
    class.optional = name == "options"
    return class, rest
  end
  local kind
  name, rest = text:match("^type (%u%w*): (.*)$")
  if name then
    local stop = part_end(rest, 1, { " %- " })
    local entry = { name = name, kind = rest:sub(1, stop) }
    model.types[#model.types + 1] = entry
    return entry, rest:sub(stop + 4)
  end
  local prefix, mark, arguments
  prefix, mark, name, arguments = text:match("^(%l[%w_.]*)([.:])(%l[%w_|]*)(%(.*)$")
  if not prefix then
    prefix, arguments = text:match("^(%l[%w_.]*)(%(.*)$") -- an object that is called
    if not prefix or not prefixes[prefix] or not model.called[prefixes[prefix]] then prefix = nil end
  end
  if prefix and prefixes[prefix] and (mark ~= "." or model.modules[prefix] or model.called[prefixes[prefix]]) then
    local close = part_end(arguments, 2, { "%)" })
    local after = arguments:sub(close + 2)
    if after ~= "" and not after:find("^ %->") and not after:find("^%.") then return nil end
    local results = ""
    if after:find("^ %-> ") then
      local stop = part_end(after, 5, { "%. ", "%.$" })
      results, after = after:sub(5, stop), after:sub(stop + 1)
    end
    rest = after:gsub("^%. ?", "")
    local class = model.classes[prefixes[prefix]]
    local form = { mark = mark, parameters = parameters_of(arguments:sub(2, close), prefixes),
      results = results_of(results, prefixes) }
    if not name then
      class.more[#class.more + 1] = { overload = form }
      return class, rest
    end
    local last = model.last
    if last and last.key == class.name .. name then -- another form of the same functions
      last.overloads[#last.overloads + 1] = form
      return last, rest
    end
    form.key, form.overloads = class.name .. name, {}
    for each in name:gmatch("[^|]+") do add(class, class.functions, { name = each, form = form }) end
    model.last = form
    return form, rest
  end
  name, kind = text:match("^#(%l[%w_]*): (%w+)$")
  if name and prefixes[name] then
    table.insert(model.classes[prefixes[name]].more, { operator = "len: " .. kind })
    return {}, ""
  end
  local other
  name, other, kind = text:match("^(%l[%w_]*) %.%. (%S+): (%S+)$")
  if name and prefixes[name] then
    table.insert(model.classes[prefixes[name]].more, { operator = "concat(" .. other .. "): " .. kind })
    return {}, ""
  end
  prefix, name, rest = text:match("^(%l[%w_.]*)%.(%l[%w_]*): (.*)$")
  if not prefix then prefix, name, rest = text:match("^(%l[%w_]*)(%[[%w|]+%]): (.*)$") end
  if prefix and prefixes[prefix] then
    local class = model.classes[prefixes[prefix]]
    local stop = part_end(rest, 1, { " %- " })
    return add(class, class.fields, { name = name, kind = rest:sub(1, stop) }), rest:sub(stop + 4)
  end
  return nil
end

-- Joins the lines of an entry that is wrapped: until its brackets close, and after a separator.
local function joined(lines, at)
  local text = lines[at]
  local function incomplete()
    local open = select(2, text:gsub("[%(%[{]", "")) - select(2, text:gsub("[%)%]}]", ""))
    return open > 0 or text:find("[,|:]$") or text:find("%->$")
  end
  if text:find("^%l[%w_.:|]*%(") or text:find("^type %u") or text:find("^%l[%w_.]*: fun") then
    while incomplete() and lines[at + 1] do
      at = at + 1
      text = text .. " " .. lines[at]
    end
  end
  return text, at
end

local function read_comment(lines)
  local prefixes, current, at = prefixes_of(lines), nil, 1
  model.last = nil
  while at <= #lines do
    local text, over = joined(lines, at)
    local entry, rest = entry_of(text, prefixes)
    if entry then
      current, at = entry, over
      if rest ~= "" then current.text = (current.text and current.text .. " " or "") .. rest end
    elseif current and lines[at] ~= "" then
      current.text = (current.text and current.text .. " " or "") .. lines[at]
    else
      current = nil
    end
    at = at + 1
  end
end

-- ---- options -------------------------------------------------------------------------------------------------------

local kinds = { size = "Size", seconds = "number", count = "integer", rate = "Size", flag = "boolean", text = "string" }

-- The fields of the tables in a source: tables["limits"] = { { name, comment }, ... }. The comment follows the option, or
-- stands above it.
local function tables_of(text)
  local tables, open, above = {}, nil, nil
  for line in text:gmatch("[^\n]*") do
    local name = line:match("^local ([%w_]+) = {") or line:match("^([%w_.]+) = {")
    if name then
      open = {}
      tables[name] = open
    elseif line:find("^}") then
      open = nil
    elseif open then
      local field = line:match("^  ([%w_]+) = ")
      if field then open[#open + 1] = { field, line:match(", %-%- (.*)$") or above } end
      above = line:match("^  %-%- (.*)$")
    end
  end
  return tables
end

local function shown(value) return type(value) == "string" and '"' .. value .. '"' or tostring(value) end

-- One field of a class of options. `spec`: see options.lua.
local function option_of(where, name, spec, comment)
  if spec == true or spec[2] == "is" then
    comment = comment or ""
    local stop = part_end(comment, 1, { " %- " })
    if stop == #comment then error(where .. ": no type of " .. name, 0) end
    return { name = name, optional = true, kind = comment:sub(1, stop), text = comment:sub(stop + 4) }
  end
  if spec[2] == "text" then comment = spec[3] .. (comment and "; " .. comment or "") end
  if not comment then error(where .. ": " .. name .. " has no description", 0) end
  local kind = kinds[spec[2]] or ('"%s"|"%s"'):format(spec[3], spec[4])
  if spec.none then kind = kind .. "|false" end
  if spec[5] ~= nil then comment = comment .. "; default " .. shown(spec[5]) end
  return { name = name, optional = true, kind = kind, text = comment }
end

local function read_options(sources)
  local modules, by_module = {}, {}
  for path, text in pairs(sources) do
    local name = path:match("^lua/luaserve/([%w_]+)%.lua$")
    if name and text:find("calls = {") then
      modules[#modules + 1], by_module[name] = name, tables_of(text)
    end
  end
  table.sort(modules)
  for _, module in ipairs(modules) do
    local calls, done = require("luaserve." .. module).calls, {}
    for line in sources["lua/luaserve/" .. module .. ".lua"]:gmatch("[^\n]+") do
      local call, names, class_name = line:match('%["([^"]+)"%] = { ([%w_., =]+) },? ?}? %-%- (%u%w*)$')
      local class = call and class_named(class_name)
      names = (names or ""):gsub(", %w+ = true", "")
      local count = 0
      for name in names:gmatch("[%w_.]+") do
        count = count + 1
        local list = (by_module[name:match("^([%w_]+)%.")] or by_module[module])[name] -- ws.limits
        if not list then error(call .. ": no table " .. name, 0) end
        for _, option in ipairs(list) do
          add(class, class.fields, option_of(call, option[1], calls[call][count][option[1]], option[2]))
        end
      end
      if call then
        class.text = "Options of " .. call .. "."
        done[calls[call]] = true
      end
    end
    for call, tables in pairs(calls) do
      if not done[tables] then error(call .. " has no class in the line of `calls`", 0) end
    end
  end
end

-- The counters of ls.stats, from the table of the reference.
local function read_stats(page)
  local class = class_named("Stats")
  class.text = "The counters of ls.stats."
  for line in page:match("\n## ls%.stats\n(.-)\n## "):gmatch("[^\n]+") do
    local names, text = line:match("^| (`[^|]*) | (.*) |$")
    for name in (names or ""):gmatch("`([%w_]+)`") do
      local plain = text:gsub("%[(.-)%]%b()", "%1") -- without links
      add(class, class.fields, { name = name, kind = name == "uptime" and "number" or "integer", text = plain })
    end
  end
end

-- ---- writing -------------------------------------------------------------------------------------------------------

-- Types of luaserve have its name.
local function typed(kind)
  return (kind:gsub('"[^"]*"', function(text) return (text:gsub("%u", "\1%0")) end)
    :gsub("%f[%w_\1]%u[%w]*", function(name) return #name > 1 and "luaserve." .. name or name end):gsub("\1", ""))
end

local function sentence(text) return (text:gsub("^%l", string.upper):gsub("[^.]$", "%0.")) end

-- The text as lines of at most 117 bytes after "---".
local function wrapped(out, text)
  local line = "---"
  for word in sentence(text or ""):gmatch("%S+") do
    if #line + #word > 120 then
      out[#out + 1] = line
      line = "---" .. word
    else
      line = line .. (line == "---" and "" or " ") .. word
    end
  end
  if line ~= "---" then out[#out + 1] = line end
end

local function function_type(entry, self)
  local parts = {}
  if entry.mark == ":" then parts[1] = "self: " .. self end
  for _, parameter in ipairs(entry.parameters) do
    parts[#parts + 1] = parameter.name .. (parameter.optional and "?" or "") .. ": " .. typed(parameter.kind)
  end
  local results = {}
  for i, result in ipairs(entry.results) do results[i] = typed(result.kind) end
  return "fun(" .. table.concat(parts, ", ") .. ")" .. (#results > 0 and ": " .. table.concat(results, ", ") or "")
end

local function write_function(out, name, entry, variable, full)
  local names, generic = {}, false
  if not entry.text then error(entry.key .. " has no description", 0) end
  out[#out + 1] = ""
  wrapped(out, entry.text)
  for _, parameter in ipairs(entry.parameters) do
    if parameter.kind:find("%f[%w]T%f[%W]") and not generic then
      generic = true
      out[#out + 1] = "---@generic T"
    end
  end
  for i, parameter in ipairs(entry.parameters) do
    names[i] = parameter.name
    out[#out + 1] = ("---@param %s%s %s"):format(parameter.name, parameter.optional and "?" or "", typed(parameter.kind))
  end
  for _, result in ipairs(entry.results) do
    out[#out + 1] = "---@return " .. typed(result.kind) .. (result.name ~= "" and " " .. result.name or "")
  end
  for _, overload in ipairs(entry.overloads) do
    out[#out + 1] = "---@overload " .. function_type(overload, full)
  end
  out[#out + 1] = ("function %s%s%s(%s) end"):format(variable, entry.mark, name, table.concat(names, ", "))
end

local function write_class(out, class)
  local full = class.name == "Module" and "luaserve" or "luaserve." .. class.name
  local variable = class.variable and (class.variable:match("([%w_]+)$"))
  out[#out + 1] = ""
  if not class.text then error(class.name .. " has no description", 0) end
  wrapped(out, class.text)
  out[#out + 1] = "---@class " .. full
  for _, more in ipairs(class.more) do
    out[#out + 1] = more.operator and "---@operator " .. typed(more.operator)
      or "---@overload " .. function_type(more.overload)
  end
  for _, field in ipairs(class.fields) do
    local mark = (field.optional or class.optional) and "?" or ""
    out[#out + 1] = ("---@field %s%s %s %s"):format(field.name, mark, typed(field.kind), field.text or ""):gsub("%s+$", "")
  end
  if model.called[class.name] then
    for _, entry in ipairs(class.functions) do
      wrapped(out, entry.form.text)
      out[#out + 1] = "---@field " .. entry.name .. " " .. function_type(entry.form)
    end
  elseif class.functions[1] or class.name == "Module" then
    out[#out + 1] = "local " .. variable .. " = {}"
    for _, entry in ipairs(class.functions) do
      write_function(out, entry.name, entry.form, variable, full)
    end
  end
end

local heads = {
  luaserve = [[
---@meta luaserve
-- luacheck: ignore 212 241 631

-- Definitions of luaserve for the Lua language server, made from its sources. The reference, lua/docs/reference, describes
-- everything in detail. Times are seconds; a size is a number of bytes or a string such as "64k". A call that fails for a
-- reason outside of the program returns nil, a message and a code.]],
  test = [[
---@meta luaserve.test
-- luacheck: ignore 111 212 241 631

-- Definitions of the test files of `luaserve test` for the Lua language server, made from its sources. lua/docs/testing.md
-- describes them in detail.]],
}

local function write(kind)
  local out = { heads[kind] }
  local function of_test(name) return name:find("^Test") ~= nil end
  if kind == "luaserve" then
    table.sort(model.types, function(a, b) return a.name < b.name end)
    for _, alias in ipairs(model.types) do
      out[#out + 1] = ""
      wrapped(out, alias.text)
      out[#out + 1] = "---@alias luaserve." .. alias.name .. " " .. typed(alias.kind)
    end
    write_class(out, model.classes.Module)
  end
  table.sort(model.order)
  for _, name in ipairs(model.order) do
    if name ~= "Module" and of_test(name) == (kind == "test") then write_class(out, model.classes[name]) end
  end
  if kind == "test" then
    out[#out + 1] = "\n-- The globals of a test file."
    for _, name in ipairs(model.globals) do out[#out + 1] = name .. " = test." .. name end
  end
  out[#out + 1] = kind == "test" and "\nreturn test\n" or "\nreturn ls\n"
  return table.concat(out, "\n")
end

-- generate(sources) -> { ["luaserve.lua"] = text, ["test.lua"] = text } and a text for each module that is required, the
-- model. `sources`: texts by their paths from
-- the root of the tree. package.path must find luaserve.options and the modules that have options. Raises for a comment
-- that is incomplete.
function definitions.generate(sources)
  model = { classes = {}, order = {}, prefixes = {}, types = {}, modules = { test = true }, called = {}, globals = {},
    required = {} }
  local paths, comments = {}, {}
  for path in pairs(sources) do paths[#paths + 1] = path end
  table.sort(paths)
  for _, path in ipairs(paths) do
    for _, lines in ipairs(path:find("%.md$") and {} or comments_of(sources[path], path:find("%.[ch]$"))) do
      comments[#comments + 1] = { path, lines }
      for _, line in ipairs(lines) do
        local name, class = line:match("^(%l[%w_.]*) is an? (%u%w*): ")
        if name and not scoped[name] then
          if model.prefixes[name] then error(path .. ": " .. name .. " is declared twice", 0) end
          model.prefixes[name] = class_named(class).name
          if name:find("^ls") or name:find("^test%.") then model.modules[name] = true end
        end
        local required = name and line:match('`require "luaserve%.([%w_]+)"`')
        if required == "test" then required = nil end -- its file has more
        if required then model.required[required], model.modules[name] = class, true end
        if required or name == "describe" or name == "it" or name == "check" then model.called[class] = true end
      end
    end
  end
  for name in sources["lua/luaserve/test/file.lua"]:match("local GLOBALS = {(.-)}"):gmatch('"([%w_]+)"') do
    model.globals[#model.globals + 1] = name
  end
  for _, comment in ipairs(comments) do
    local fine, message = pcall(read_comment, comment[2])
    if not fine then error(comment[1] .. ": " .. tostring(message) .. "\n  in: " .. (comment[2][1] or ""), 0) end
  end
  local codes = {}
  for code in sources["src/luaserve.h"]:gmatch("%f[%w]X%((E%u+),") do codes[#codes + 1] = '"' .. code .. '"' end
  table.sort(codes)
  model.types[#model.types + 1] = { name = "Code", kind = table.concat(codes, "|"),
    text = "The code of a failure: the third result of a call that fails." }
  read_options(sources)
  read_stats(sources["lua/docs/reference/module.md"])
  local files = { ["luaserve.lua"] = write "luaserve", ["test.lua"] = write "test" }
  for name, class in pairs(model.required) do
    files[name .. ".lua"] = ("---@meta luaserve.NAME\n\n---@type luaserve.%s\nlocal NAME\nreturn NAME\n"):format(class)
      :gsub("NAME", name)
  end
  return files, model
end

-- read(root, paths) -> the texts of the files, by path.
function definitions.read(root, paths)
  local sources = {}
  for _, path in ipairs(paths) do
    local file = assert(io.open(root .. "/" .. path, "rb"))
    sources[path] = file:read("a"):gsub("\r\n", "\n")
    file:close()
  end
  return sources
end

if arg and arg[3] and arg[0]:find("definitions%.lua$") then
  local out_dir, root, paths = arg[1], arg[2], {}
  for path in io.lines(arg[3]) do paths[#paths + 1] = path end
  package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua"
  local unused = setmetatable({}, { __index = function() return function() end end })
  package.loaded["luaserve.core"], package.loaded["luaserve.json"] = unused, unused
  for name, text in pairs((definitions.generate(definitions.read(root, paths)))) do
    local file = assert(io.open(out_dir .. "/" .. name, "wb"))
    assert(file:write(text))
    file:close()
  end
end

return definitions
