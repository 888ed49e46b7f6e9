-- Parses definitions for editors. As a program, `lua5.4 parse_definitions.lua FILE...`, prints each name that the files
-- define, such as "luaserve.App:get", "luaserve.Sock.remote" and, for a global, "_G.describe", for
-- tests/e2e/test_definitions.py.

local definitions = {}

local function parse_file(file, content, result)
  local block = {} -- of annotations and descriptions without a blank line
  local variables = {} -- the class of each local table
  local number = 0
  local class -- the table of the class whose fields follow
  for text in content:gmatch("([^\n]*)\n") do
    number = number + 1
    local tag, rest = text:match("^%-%-%-@(%a+) ?(.*)$")
    local description = text:match("^%-%-%-([^@].*)$")
    if tag then
      local line = { number = file .. ":" .. number, text = text, tag = tag, rest = rest }
      result.lines[#result.lines + 1] = line
      block[#block + 1] = line
      if tag == "class" then
        local name = rest:match("^([%w_.]+)")
        class = { fields = {}, description = block.description }
        result.classes[name], block.class = class, name
      elseif tag == "field" then
        class.fields[rest:match("^([%w_]+)") or "[]"] = true
      elseif tag == "alias" then
        result.aliases[rest:match("^([%w_.]+)")] = true
      end
    elseif description then
      block.description = (block.description or "") .. description
    else
      local variable = text:match("^local ([%w_]+) = {}$")
      if block[1] and block[1].tag == "type" then text = text:gsub("^local [%w_]+$", "") end
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
      elseif text ~= "" and not text:match("^%-%- ") and not text:match("^return [%l_]+$") then
        error(file .. ":" .. number .. ": unexpected " .. text)
      end
      block = {}
    end
  end
end

-- parse(files) -> the content of the files, a table of texts by their names: { lines = annotations,
-- classes = { [name] = { fields =, description = } }, aliases = { [name] = true },
-- globals = { [name] = the class of the module that has the function },
-- functions = { ["luaserve.App:get"] = { description =, parameters = "a, b", documented = { "a", "b" } } } }
function definitions.parse(files)
  local result = { lines = {}, classes = {}, aliases = {}, globals = {}, functions = {} }
  for name, text in pairs(files) do parse_file(name, text, result) end
  return result
end

if arg and arg[0] and arg[0]:match("parse_definitions%.lua$") then
  local files = {}
  for _, path in ipairs(arg) do files[path] = assert(io.open(path)):read("a") end
  local parsed = definitions.parse(files)
  for name, class in pairs(parsed.classes) do
    for field in pairs(class.fields) do print(name .. "." .. field) end
  end
  for name in pairs(parsed.functions) do print(name) end
  for name in pairs(parsed.globals) do print("_G." .. name) end
end

return definitions
