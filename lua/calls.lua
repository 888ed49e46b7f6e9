-- calls.lua - makes lua/docs/reference/calls.md, all calls of the Lua API on one page, from the model of definitions.lua.

local calls = {}

local HEAD = [[
# All calls

Every function and method of the API. `[ ]` may be left out; what follows the arrow are the results. A call that fails for a reason
outside of the program returns `nil, message, code`, which the arrow does not repeat; one of a database raises. An error about a value that is `nil` ends with the last
call of the task that has failed so: `; the last call that failed before: site.lua:12: connection refused`. Each name leads to its description.

This page is made from the comments of the sources, as the [definitions for editors](command-line.md#luaserve-new) are.
]]

local function call_of(variable, names, form)
  local text, brackets = "", 0
  for i, parameter in ipairs(form.parameters) do
    local comma = i > 1 and ", " or ""
    if parameter.optional then
      text, brackets = text .. (i > 1 and " " or "") .. "[", brackets + 1
    end
    text = text .. comma .. parameter.name
  end
  return ("%s%s%s(%s%s)"):format(variable, form.mark, table.concat(names, "|"), text, ("]"):rep(brackets))
end

-- " → `value`"; nothing for a call that only succeeds or fails.
local function results_of(form)
  local names = {}
  for _, result in ipairs(form.results) do
    local name = result.name:gsub("_or_.*", "")
    if name == "message" then break end
    names[#names + 1] = name ~= "" and name or result.kind
  end
  if not names[1] or names[1] == "ok" then return "" end
  return " → `" .. table.concat(names, ", ") .. "`"
end

local function first_sentence(text) return (text:match("^(.-%w%)?`?%.)%s+%u") or text):gsub("%.$", "") end

local function cell(text) return (text:gsub("|", "\\|")) end

-- A function: the place of a call by its name, "dict.md#dictget" for "dict:get": the heading that has it, else the first page
-- that uses it. `pages`: texts by the names of their files.
local function places_of(pages)
  local headings, files = {}, {}
  for file in pairs(pages) do files[#files + 1] = file end
  table.sort(files)
  for _, file in ipairs(files) do
    for heading in ("\n" .. pages[file]):gmatch("\n#+ ([^\n]+)") do
      local anchor = heading:lower():gsub("[^%w_%- ]", ""):gsub(" ", "-")
      for name in heading:gmatch("[%a_][%w_.]*:?[%w_]*") do headings[name] = headings[name] or file .. "#" .. anchor end
    end
  end
  return function(name)
    if headings[name] then return headings[name] end
    for _, pattern in ipairs { "\n`@%(", "%f[%w]@%f[^%w_]" } do -- the form of a call in front of the first heading
      pattern = pattern:gsub("@", (name:gsub("%p", "%%%%%0")))
      for _, file in ipairs(files) do
        if pages[file]:find(pattern) then return file end
      end
    end
  end
end

-- page(model, pages) -> the text of the page. `pages`: the texts of the pages of the reference, by the names of their files.
function calls.page(model, pages)
  local place_of, out, classes = places_of(pages), { HEAD }, {}
  for _, class in pairs(model.classes) do
    if class.variable and class.functions[1] then classes[#classes + 1] = class end
  end
  local function rank(class) return class.variable == "ls" and "" or class.variable end
  table.sort(classes, function(a, b) return rank(a) < rank(b) end)
  for _, class in ipairs(classes) do
    local variable, at = class.variable, 1
    out[#out + 1] = ("## %s\n\n| call | |\n|---|---|"):format(variable)
    while class.functions[at] do
      local form, names = class.functions[at].form, {}
      while class.functions[at] and class.functions[at].form == form do
        names[#names + 1], at = class.functions[at].name, at + 1
      end
      local place
      for _, name in ipairs(names) do place = place or place_of(variable .. form.mark .. name) end
      local call = "`" .. cell(call_of(variable, names, form)) .. "`"
      if place then call = ("[%s](%s)"):format(call, place) end
      out[#out + 1] = ("| %s%s | %s |"):format(call, cell(results_of(form)), cell(first_sentence(form.text)))
    end
    local fields = {}
    for i, field in ipairs(class.fields) do fields[i] = "`" .. cell(field.name) .. "`" end
    if fields[1] then out[#out + 1] = "| fields | " .. table.concat(fields, ", ") .. " |" end
    out[#out + 1] = ""
  end
  return table.concat(out, "\n"):gsub("\n+$", "\n")
end

return calls
