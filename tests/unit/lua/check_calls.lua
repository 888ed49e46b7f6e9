-- Compares the calls in Lua code with the definitions for editors: a field or method that does not exist, "." in place
-- of ":", a wrong number of arguments, an argument or option of a wrong kind, an unknown option. It knows the class of a
-- value that comes from a call of luaserve, and of a parameter where the function is passed to one; a value of unknown
-- class is not checked.
--
-- check_calls(model, text [, known]) -> a list of "line: message". `model` is that of lua/definitions.lua, `known` the
-- classes of names that the code does not define.
local generator = require("documented").generator
local parse = require "parse_lua"
local part_end, split = generator.part_end, generator.split

-- Parameters with these names have their class also where the function is not passed to luaserve.
local usual = { req = "Request", res = "Response", sock = "Sock", ws = "WebSocket", sse = "Sse", peer = "Peer" }

-- Without "?" at the end and brackets around: the kind of a value that is there.
local function bare(kind)
  kind = kind:gsub("%?$", "")
  if kind:find("^%(") and part_end(kind, 2, { "%)" }) == #kind - 1 then kind = kind:sub(2, -2) end
  return kind
end

return function(model, text, known)
  local wrong, scope = {}, { names = known or {} }
  local aliases = {}
  for _, entry in ipairs(model.types) do aliases[entry.name] = entry.kind end
  local value, walk

  local function report(node, ...) wrong[#wrong + 1] = node.line .. ": " .. string.format(...) end

  -- ---- kinds

  -- The first class among the alternatives of a kind, or "string", "function" and so on; nil: unknown.
  local function class_of(kind)
    for _, one in ipairs(kind and split(bare(kind), "%s*|%s*") or {}) do
      one = bare(one)
      if model.classes[one] then return one end
    end
    return nil
  end

  -- The kinds of parameters and the first result of "fun(a: b): c".
  local function function_of(kind)
    kind = bare(kind)
    for _, one in ipairs(split(kind, "%s*|%s*")) do
      one = bare(one)
      if aliases[one] then one = bare(aliases[one]) end
      if one:find("^fun%(") then
        local stop = part_end(one, 5, { "%)" })
        local parameters = {}
        for _, parameter in ipairs(split(one:sub(5, stop), "%s*,%s*")) do
          parameters[#parameters + 1] = parameter:match("^[%w_]+%??: (.*)$") or "any"
        end
        return parameters, one:sub(stop + 2):match("^: (.*)$")
      end
    end
    return nil
  end

  local fits

  local function has_operator(class) return next(class.functions) ~= nil or next(class.more) ~= nil end

  -- Whether the constructor of a table has the fields of a class; else nil and a message.
  local function fits_class(node, class)
    local fields, some = {}, nil
    for _, field in ipairs(class.fields) do
      if field.name:find("^%[") then some = true else fields[field.name] = field end
    end
    for _, item in ipairs(node.items) do
      local key = item.key
      if key and key.tag == "String" then
        local field = fields[key.value]
        if not field and not some then return nil, ("%s has no %s"):format(class.name, key.value), key end
        if field then
          local fine, message, where = fits(item.value, field.kind)
          if not fine then return nil, ("%s: %s"):format(key.value, message), where or key end
        end
      elseif not key and not some then
        return nil, ("%s is no list"):format(class.name), item.value
      end
    end
    return true
  end

  local literals = { String = "string", Number = "number", True = "boolean", False = "boolean", Nil = "nil",
    Lambda = "function", Table = "table" }

  -- fits(node, kind) -> whether a value of this kind may be written so; else nil, a message and its node.
  function fits(node, kind)
    if node.tag == "Paren" then return fits(node.value, kind) end
    local literal, class = literals[node.tag], nil
    if not literal then
      class = value(node)
      if not class or not (model.classes[class] or class == "string" or class == "function") then return true end
      if not model.classes[class] then literal, class = class, nil end
    end
    if kind:find("%?$") and literal == "nil" then return true end
    local message, where
    for _, one in ipairs(split(bare(kind), "%s*|%s*")) do
      one = bare(one)
      local optional = one ~= kind and kind:find("%?$")
      if one == "any" or one == "T" or optional and literal == "nil" then return true end
      if aliases[one] then
        local fine, reason, at = fits(node, aliases[one])
        if fine then return true end
        if not where then message, where = reason, at end
      elseif one:find('^"') then
        if literal == "string" and (node.tag ~= "String" or '"' .. node.value .. '"' == one) then return true end
      elseif one:find("%[%]$") then
        local element, all = one:sub(1, -3), literal == "table"
        for _, item in ipairs(all and node.items or {}) do
          local fine, reason, at = fits(item.value, element)
          if item.key or not fine then
            all = false
            if not item.key and not where then message, where = reason, at end
            break
          end
        end
        if all then return true end
      elseif one:find("^fun%(") or one == "function" then
        if literal == "function" then return true end
      elseif one:find("^table") then
        if literal == "table" then return true end
      elseif model.classes[one] then
        if class == one then return true end
        if literal == "table" and not has_operator(model.classes[one]) then
          local fine, reason, at = fits_class(node, model.classes[one])
          if fine then return true end
          if not where then message, where = reason, at end
        end
      elseif one == "integer" then
        if literal == "number" and (not node.value or math.tointeger(node.value)) then return true end
      elseif one == "true" or one == "false" then
        if literal == "boolean" and node.tag:lower() == one then return true end
      elseif one == literal then
        return true
      end
    end
    return nil, message or ("%s expected, got %s"):format(kind, class or literal), where
  end

  -- ---- calls

  -- Checks the arguments against the forms of a function; returns the kinds of the results of the form that fits.
  local function check_arguments(node, shown, forms)
    local arguments, open, first, where = node.arguments, false, nil, nil
    local last = arguments[#arguments]
    if last and (last.tag == "Call" or last.tag == "Method" or last.tag == "Vararg") then open = true end
    for _, form in ipairs(forms) do
      local least, most, problem, at = 0, 0, nil, nil
      for i, parameter in ipairs(form.parameters) do
        most = parameter.name == "..." and math.huge or i
        if parameter.name ~= "..." and not parameter.optional then least = i end
      end
      if #arguments - (open and 1 or 0) > most or (#arguments < least and not open) then
        problem = ("%s takes %s, got %d"):format(shown, least == most and least or least .. " to " .. most, #arguments)
      else
        for i, argument in ipairs(arguments) do
          local parameter = form.parameters[i] or form.parameters[#form.parameters]
          local fine, message
          fine, message, at = fits(argument, parameter.kind)
          if not fine and not (parameter.optional and argument.tag == "Nil") then
            problem, at = ("%s: %s: %s"):format(shown, parameter.name, message), at or argument
            break
          end
        end
      end
      if not problem then
        for i, argument in ipairs(arguments) do
          local parameter = form.parameters[i] or form.parameters[#form.parameters]
          walk(argument, parameter and parameter.kind)
        end
        return form.results
      end
      -- the message of the form that fits best: an option or kind rather than a number of arguments
      if not first or at and not where then first, where = problem, at end
    end
    for _, argument in ipairs(arguments) do walk(argument) end
    report(where or node, "%s", first)
    return forms[1].results
  end

  local function forms_of(entry)
    local forms = { entry.form }
    for _, form in ipairs(entry.form.overloads) do forms[#forms + 1] = form end
    return forms
  end

  local function lookup(name)
    local at = scope
    while at do
      if at.names[name] ~= nil then return at.names[name] end
      at = at.outer
    end
    return nil
  end

  -- The name by which the definitions know a class: "ls.json" for Json.
  local function shown_of(class)
    return model.classes[class].variable or class
  end

  -- The entry of a field or method of a value of a class; reports one that does not exist. Fields of the site, such as
  -- req.user, are no methods.
  local function member(node, class, name, is_method)
    local entry = model.classes[class].named[name]
    if entry then return entry end
    for _, field in ipairs(is_method and {} or model.classes[class].fields) do
      if field.name:find("^%[") then return {} end
    end
    if class == "Module" and model.prefixes["ls." .. name] then return { kind = model.prefixes["ls." .. name] } end
    report(node, "%s has no %s", shown_of(class), name)
    return nil
  end

  -- ---- values

  -- value(node) -> the class of its value as far as it is known, or "string", "function"; checks nothing.
  -- results(node) -> the kinds of all values of a call; checks it.
  local results
  local kinds_of = setmetatable({}, { __mode = "k" }) -- of calls that were checked

  function value(node)
    local tag = node.tag
    if tag == "Name" then
      return lookup(node.name) or nil
    elseif tag == "Paren" then
      return value(node.value)
    elseif tag == "String" then
      return "string"
    elseif tag == "Lambda" then
      return "function"
    elseif tag == "Index" and node.key.tag == "String" then
      local class = value(node.object)
      local of = class and model.classes[class]
      if not of then return nil end
      local entry = of.named[node.key.value]
      if entry and entry.kind then return class_of(entry.kind) end
      return class == "Module" and model.prefixes["ls." .. node.key.value] or nil
    elseif tag == "Call" or tag == "Method" then
      local list = results(node)
      return list and list[1] and class_of(list[1].kind)
    end
    return nil
  end

  function results(node)
    if kinds_of[node] then return kinds_of[node] end
    kinds_of[node] = {}
    local list
    if node.tag == "Method" then
      walk(node.object)
      local class = value(node.object)
      if class and model.classes[class] then
        local entry = member(node, class, node.name, true)
        if entry and entry.form then
          if entry.form.mark == "." then
            report(node, "%s.%s is called with a dot", shown_of(class), node.name)
          else
            list = check_arguments(node, shown_of(class) .. ":" .. node.name, forms_of(entry))
          end
        end
      end
    else
      local callee = node.callee
      if callee.tag == "Name" and callee.name == "require" and node.arguments[1] and node.arguments[1].tag == "String" then
        local class = ({ luaserve = "Module", ["luaserve.test"] = "Test" })[node.arguments[1].value]
        list = class and { { kind = class } }
      elseif callee.tag == "Name" and callee.name == "assert" and node.arguments[1] then
        local inner = node.arguments[1]
        walk(inner)
        local class = value(inner)
        list = class and { { kind = class } }
      elseif callee.tag == "Index" and callee.key.tag == "String" then
        walk(callee.object)
        local class = value(callee.object)
        if class and model.classes[class] then
          local entry = member(callee, class, callee.key.value)
          if entry and entry.form then
            if entry.form.mark == ":" then
              report(callee, "%s:%s is called with a colon", shown_of(class), callee.key.value)
            else
              list = check_arguments(node, shown_of(class) .. "." .. callee.key.value, forms_of(entry))
            end
          end
        end
      else
        walk(callee)
        local class = value(callee)
        local of = class and model.classes[class]
        local forms = {}
        for _, more in ipairs(of and of.more or {}) do forms[#forms + 1] = more.overload end
        if forms[1] then list = check_arguments(node, shown_of(class), forms) end
      end
    end
    if not list then
      for _, argument in ipairs(node.arguments) do walk(argument) end
    end
    kinds_of[node] = list or {}
    return list or {}
  end

  -- ---- statements

  local function inside(names, fn)
    scope = { names = names, outer = scope }
    fn()
    scope = scope.outer
  end

  local function statements(list, names)
    inside(names or {}, function()
      for _, statement in ipairs(list) do walk(statement) end
    end)
  end

  -- The classes of a list of values, as many as names.
  local function classes_of(values, count)
    local list = {}
    for i, one in ipairs(values) do
      if i < #values or (one.tag ~= "Call" and one.tag ~= "Method") then
        list[i] = value(one) or false
      else
        for n, result in ipairs(results(one)) do list[i + n - 1] = class_of(result.kind) or false end
      end
    end
    for i = 1, count do list[i] = list[i] or false end
    return list
  end

  -- Walks a node and checks the calls in it. `kind`: of the parameter or field that it is the value of.
  function walk(node, kind)
    local tag = node.tag
    if tag == "Local" then
      if node.recursive then scope.names[node.names[1]] = "function" end
      for _, one in ipairs(node.values) do walk(one) end
      local classes = classes_of(node.values, #node.names)
      for i, name in ipairs(node.names) do scope.names[name] = classes[i] end
    elseif tag == "Assign" then
      for _, one in ipairs(node.values) do walk(one) end
      local classes = classes_of(node.values, #node.targets)
      for i, target in ipairs(node.targets) do
        walk(target)
        if target.tag == "Name" then
          local at = scope
          while at and at.names[target.name] == nil do at = at.outer end
          at = at or scope
          local old = at.names[target.name]
          if at.names == known then old = nil end
          at.names[target.name] = (not old or old == classes[i]) and classes[i]
        end
      end
    elseif tag == "Function" then
      walk(node.value)
    elseif tag == "Do" then
      statements(node.body)
    elseif tag == "While" then
      walk(node.condition)
      statements(node.body)
    elseif tag == "Repeat" then
      statements(node.body)
      inside({}, function() walk(node.condition) end)
    elseif tag == "If" then
      for i, body in ipairs(node.bodies) do
        if node.conditions[i] then walk(node.conditions[i]) end
        statements(body)
      end
    elseif tag == "For" or tag == "ForIn" then
      local names = {}
      for _, one in ipairs(node.values) do walk(one) end
      for _, name in ipairs(node.names) do names[name] = false end
      local first = node.values[1]
      if tag == "ForIn" and (first.tag == "Call" or first.tag == "Method") then
        local list = results(first)
        local _, result = function_of(list[1] and list[1].kind or "any")
        names[node.names[1]] = class_of(result) or false
      end
      statements(node.body, names)
    elseif tag == "Return" then
      for _, one in ipairs(node.values) do walk(one) end
    elseif tag == "Expression" or tag == "Paren" then
      walk(node.value)
    elseif tag == "Operation" then
      walk(node.left)
      if node.right then walk(node.right) end
    elseif tag == "Index" then
      walk(node.object)
      local class = value(node.object)
      if node.key.tag ~= "String" then
        walk(node.key)
      elseif class and model.classes[class] then
        member(node, class, node.key.value)
      end
    elseif tag == "Call" or tag == "Method" then
      results(node)
    elseif tag == "Table" then
      local class = class_of(kind)
      local named = class and model.classes[class].named or {}
      for _, item in ipairs(node.items) do
        if item.key and item.key.tag ~= "String" then walk(item.key) end
        local field = item.key and item.key.tag == "String" and named[item.key.value]
        walk(item.value, field and field.kind or nil)
      end
    elseif tag == "Lambda" then
      local names, kinds = {}, kind and function_of(kind) or {}
      for i, name in ipairs(node.parameters) do
        names[name] = class_of(kinds[i]) or not kinds[i] and usual[name] or false
      end
      statements(node.body, names)
    end
  end

  for _, statement in ipairs(parse(text)) do walk(statement) end
  return wrong
end
