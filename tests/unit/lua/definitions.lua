-- Parses lua/definitions. As a program, `lua5.4 definitions.lua`, prints each name that they define, such as
-- "luaserve.App:get", "luaserve.Sock.remote" and, for a global, "_G.describe", for tests/e2e/test_definitions.py.

local definitions = {}

local here = (debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or ".")

local function parse_file(file, result)
  local block = {} -- of annotations and descriptions without a blank line
  local variables = {} -- the class of each local table
  local number = 0
  local class -- the table of the class whose fields follow
  for text in io.lines(here .. "/../../../lua/definitions/" .. file) do
    number = number + 1
    local tag, rest = text:match("^%-%-%-@(%a+) ?(.*)$")
    local description = text:match("^%-%-%-([^@].*)$")
    if tag then
      local line = { number = file .. ":" .. number, text = text, tag = tag, rest = rest }
      result.lines[#result.lines + 1] = line
      block[#block + 1] = line
      if tag == "class" then
        local name = rest:match("^([%w_.]+)")
        class = { fields = {}, parents = {}, description = block.description }
        result.classes[name], block.class = class, name
        for parent in (rest:match(": (.+)$") or ""):gmatch("[%w_.]+") do table.insert(class.parents, parent) end
      elseif tag == "field" then
        class.fields[rest:match("^([%w_]+)") or "[]"] = true
      elseif tag == "alias" then
        result.aliases[rest:match("^([%w_.]+)")] = true
      end
    elseif description then
      block.description = (block.description or "") .. description
    else
      local variable = text:match("^local ([%w_]+) = {}$")
      local global, module = text:match("^([%w_]+) = ([%w_]+)%.%1$")
      local object, mark, name, parameters = text:match("^function ([%w_]+)([.:])([%w_]+)%((.-)%) end$")
      if variable then
        variables[variable] = assert(block.class, file .. ":" .. number .. ": a table without a class")
      elseif global then
        result.globals[global] = variables[module]
      elseif object then
        local documented, generics = {}, {}
        for _, line in ipairs(block) do
          if line.tag == "generic" then generics[line.rest:match("^%a+")] = true end
          line.generics = generics
          if line.tag == "param" then documented[#documented + 1] = line.rest:match("^[%w_]+") or "..." end
        end
        result.functions[variables[object] .. mark .. name] = {
          description = block.description, parameters = parameters, documented = documented }
      elseif text ~= "" and not text:match("^%-%- ") and not text:match("^return %l+$") then
        error(file .. ":" .. number .. ": unexpected " .. text)
      end
      block = {}
    end
  end
end

-- parse() -> { lines = annotations, classes = { [name] = { fields =, parents =, description = } },
-- aliases = { [name] = true }, globals = { [name] = the class of the module that has the function },
-- functions = { ["luaserve.App:get"] = { description =, parameters = "a, b", documented = { "a", "b" } } } }
function definitions.parse()
  local result = { lines = {}, classes = {}, aliases = {}, globals = {}, functions = {} }
  for _, file in ipairs { "luaserve.lua", "test.lua" } do parse_file(file, result) end
  return result
end

-- fields(parsed, name) -> the names of the fields of a class and its parents, as keys.
function definitions.fields(parsed, name, into)
  into = into or {}
  for field in pairs(parsed.classes[name].fields) do into[field] = true end
  for _, parent in ipairs(parsed.classes[name].parents) do definitions.fields(parsed, parent, into) end
  return into
end

if arg and arg[0] and arg[0]:match("definitions%.lua$") and not arg[0]:match("test_") then
  local parsed = definitions.parse()
  for name, class in pairs(parsed.classes) do
    for field in pairs(class.fields) do print(name .. "." .. field) end
  end
  for name in pairs(parsed.functions) do print(name) end
  for name in pairs(parsed.globals) do print("_G." .. name) end
end

return definitions
