-- lua/definitions.lua, which makes the definitions for editors from the comments of the sources: the annotations are well
-- formed, every type is known, every function has a description, its parameters and results. The texts of the program
-- that show how a function is called, and the pages of the reference, show it as its comment does.
-- tests/e2e/test_definitions.py compares the functions and objects with those of the program.
local check = require "check"
local definitions = require "parse_definitions"
local documented = require "documented"

local tests = {}
local generator, sources, files, model = documented.generator, documented.sources, documented.files, documented.model
local parsed = definitions.parse(files)

local builtin = {}
for name in ("any boolean integer number string table function nil true false lightuserdata userdata thread file* self fun")
  :gmatch("%S+") do
  builtin[name] = true
end

-- Checks the names of types in `text`, after which a description may follow; returns the text behind the type.
local function check_type(text, where, generics)
  local depth, stop = 0, #text + 1
  for i = 1, #text do
    local c = text:sub(i, i)
    if c:match("[%(<{%[]") then depth = depth + 1 elseif c:match("[%)>}%]]") then depth = depth - 1 end
    if c == " " and depth == 0 and not text:sub(1, i - 1):match("[:,|]$") then stop = i break end
  end
  check.equal({ where, depth }, { where, 0 })
  local kind = text:sub(1, stop - 1):gsub('"[^"]*"', ""):gsub("([%w_]+)%??:", ""):gsub("%.%.%.", "")
  for name in kind:gmatch("[%a_][%w_.*]*") do
    if not builtin[name] and not parsed.classes[name] and not parsed.aliases[name] and not generics[name] then
      error(where .. ": unknown type " .. name, 0)
    end
  end
  return text:sub(stop + 1)
end

function tests.annotations_are_well_formed()
  for _, line in ipairs(parsed.lines) do
    local where, generics = line.number .. ": " .. line.text, line.generics or {}
    local rest = line.rest
    if line.tag == "field" then
      local optional
      rest, optional = rest:gsub("^%[[%w|]+%] ", "", 1)
      if optional == 0 then rest = assert(rest:match("^[%a_][%w_]*%?? (.+)$"), where) end
      check_type(rest, where, generics)
    elseif line.tag == "param" then
      check_type(assert(rest:match("^[%a_][%w_]*%?? (.+)$") or rest:match("^%.%.%. (.+)$"), where), where, generics)
    elseif line.tag == "return" or line.tag == "overload" or line.tag == "type" then
      check_type(rest, where, generics)
    elseif line.tag == "alias" then
      check_type(assert(rest:match("^[%w_.]+ (.+)$"), where), where, generics)
    elseif line.tag == "operator" then
      check_type(assert(rest:match("^%a+: (.+)$") or rest:match("^%a+%b(): (.+)$"), where), where, generics)
    elseif line.tag ~= "meta" and line.tag ~= "generic" and line.tag ~= "class" then
      error(where .. ": unknown annotation", 0)
    end
  end
end

function tests.every_class_has_a_description()
  for name, class in pairs(parsed.classes) do
    if not class.description then error(name .. " has no description", 0) end
  end
end

function tests.every_function_has_a_description_and_its_parameters()
  local count = 0
  for name, fn in pairs(parsed.functions) do
    count = count + 1
    if not fn.description then error(name .. " has no description", 0) end
    check.equal({ name, table.concat(fn.documented, ", ") }, { name, fn.parameters })
  end
  check.equal(count > 200, true)
end

function tests.they_are_lua()
  for name, text in pairs(files) do check.equal({ name, load(text) ~= nil }, { name, true }) end
end

-- A comment that is incomplete is refused, with the name of its file.
function tests.incomplete_comments()
  for text, reason in pairs {
    ["ls.url.more(count) -> text"] = "no type of count",
    ["ls.url.decode(text) -> text"] = "Url.decode is documented twice",
    ["ls.url is a Text: more"] = "ls.url is declared twice",
    ["ls.url.more(text) -> text"] = "Urlmore has no description",
  } do
    local changed = {}
    for path, content in pairs(sources) do changed[path] = content end
    changed["lua/luaserve/url.lua"] = changed["lua/luaserve/url.lua"] .. "\n-- " .. text .. "\n"
    local fine, message = pcall(generator.generate, changed)
    check.equal({ text, fine, message:find(reason, 1, true) ~= nil }, { text, false, true })
  end
end

-- ---- signatures elsewhere ------------------------------------------------------------------------------------------

local aliases = { c = "client", sock_or_ws = "sock" } -- of the pages

-- The parameters in "a, b [, c]" as lists of names, with "?" behind the optional ones; "[a,] b" gives two lists. nil
-- unless all are names.
local function lists_of(text)
  local names, depth, middle = {}, 0, nil
  for before, name, behind in text:gmatch("([^%w_.]*)([%w_.]+)()") do
    if not before:find("^[%[%], ]*$") or name:find("^%d") then return nil end
    depth = depth + select(2, before:gsub("%[", "")) - select(2, before:gsub("%]", ""))
    if names[#names] and names[#names]:find("?", 1, true) and depth == 0 and name ~= "..." then middle = #names end
    names[#names + 1] = name .. (depth > 0 and "?" or "")
    if text:find("[^%], ]", behind) and not text:find("[%w_.]", behind) then return nil end
  end
  if not middle then return { names } end
  names[middle] = names[middle]:gsub("%?", "")
  local short = table.move(names, 1, #names, 1, {})
  table.remove(short, middle)
  return { names, short }
end

-- The forms of a function, each as a list of its parameters; and the entry. Raises if there is none.
local function forms_of(where, prefix, mark, name)
  local class = model.classes[model.prefixes[aliases[prefix] or prefix]]
  local entry = class and class.named[name]
  if not entry or not entry.form or entry.form.mark ~= mark then
    error(where .. ": " .. prefix .. mark .. name .. " is not documented", 0)
  end
  local forms = {}
  for _, form in ipairs { entry.form, table.unpack(entry.form.overloads) } do
    local names = {}
    for i, parameter in ipairs(form.parameters) do names[i] = parameter.name .. (parameter.optional and "?" or "") end
    forms[#forms + 1] = names
  end
  return forms
end

local function is_form(forms, names, exact)
  local function text(list)
    local joined = table.concat(list, ", ")
    return exact and joined or (joined:gsub("%?", ""))
  end
  for _, form in ipairs(forms) do
    if text(form) == text(names) then return true end
  end
  return false, text(forms[1])
end

-- "write it like this" in the messages of the program. `most`: the number of arguments with the object itself.
local function check_usage(wrong, where, usage, most)
  local prefix, mark, name, given = usage:match("^([%l.]+)([.:])([%l_]+)(.*)$")
  if not prefix then return end
  local forms = forms_of(where, prefix, mark, name)
  local parameters = given:match("^%((.-)%)")
  for _, names in ipairs(parameters and lists_of(parameters) or {}) do
    local fine, wanted = is_form(forms, names)
    if not fine then wrong[#wrong + 1] = where .. ": " .. usage .. " is documented as (" .. wanted .. ")" end
  end
  if most then
    local longest = 0
    for _, form in ipairs(forms) do longest = math.max(longest, #form) end
    if mark == ":" then longest = longest + 1 end
    if most ~= longest then wrong[#wrong + 1] = where .. ": " .. usage .. " takes " .. longest .. " arguments" end
  end
end

function tests.messages_show_the_documented_arguments()
  local count, wrong = 0, {}
  for path, text in pairs(sources) do
    for most, usage in text:gmatch('ls_check_arguments%(L, ([^,]+), "([^"]*)') do
      count = count + 1
      check_usage(wrong, path, usage, tonumber(most))
    end
    for _, usage in text:gmatch("usage%.no_more%(([\"'])(.-)%1") do
      count = count + 1
      check_usage(wrong, path, usage)
    end
  end
  check.equal(wrong, {})
  check.equal(count > 60, true)
end

-- `ls.connect(host, port [, options]) -> ...` on the pages of the reference.
function tests.the_reference_shows_the_documented_arguments()
  local count, wrong = 0, {}
  for path, text in pairs(documented.read "lua/docs/reference/*.md lua/docs/testing.md") do
    for line in text:gmatch("[^\n]+") do
      for prefix, mark, name, given, results in line:gmatch("`([%l.]+)([.:])([%l_]+)(%b())([^`]*)`") do
        if model.prefixes[aliases[prefix] or prefix] then
          local where = path .. ": " .. line
          local forms = forms_of(where, prefix, mark, name)
          local shows = results:find("^ %->")
          for _, names in ipairs(shows and lists_of(given:sub(2, -2)) or {}) do
            count = count + 1
            local fine, wanted = is_form(forms, names, true)
            if not fine then wrong[#wrong + 1] = where .. " is documented as (" .. wanted .. ")" end
          end
        end
      end
    end
  end
  check.equal(wrong, {})
  check.equal(count > 90, true)
end

return tests
