-- Parses Lua 5.4: parse(text) -> a list of statements. Raises "line: message" for text that is not Lua. An expression
-- alone is a statement here, as the pages of the documentation write them in front of "-->".
--
-- A node is a table with `tag` and `line`. Statements:
--   Local { names, values }, Assign { targets, values }, Do { body }, Return { values }, Function { target, value },
--   ForIn { names, values, body }, For { name, values, body }, If { conditions, bodies }, While { condition, body },
--   Repeat { body, condition }, Expression { value }
-- Values:
--   Nil, True, False, Number { value }, String { value }, Vararg, Name { name }, Index { object, key },
--   Operation { left, right }, Call { callee, arguments }, Method { object, name, arguments },
--   Lambda { parameters, body }, Table { items = { { key =, value = } } }, Paren { value }

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true until
  while]]):gmatch("%S+") do
  keywords[word] = true
end

local symbols = { "...", "<<", ">>", "//", "==", "~=", "<=", ">=", "::", ".." }
local binary = { ["or"] = 1, ["and"] = 2, ["<"] = 3, [">"] = 3, ["<="] = 3, [">="] = 3, ["~="] = 3, ["=="] = 3, ["|"] = 4,
  ["~"] = 5, ["&"] = 6, ["<<"] = 7, [">>"] = 7, [".."] = 8, ["+"] = 9, ["-"] = 9, ["*"] = 10, ["/"] = 10, ["//"] = 10,
  ["%"] = 10, ["^"] = 12 }
local unary = { ["not"] = true, ["-"] = true, ["#"] = true, ["~"] = true }

-- tokens(text) -> list of { kind =, text =, line = }; the kinds are "name", "keyword", "string", "number", "symbol", "end".
local function tokens(text)
  local list, at, line = {}, 1, 1
  local function add(kind, value, stop)
    list[#list + 1] = { kind = kind, text = value, line = line }
    line = line + select(2, text:sub(at, stop):gsub("\n", ""))
    at = stop + 1
  end
  local function skip(stop)
    line = line + select(2, text:sub(at, stop):gsub("\n", ""))
    at = stop + 1
  end
  while at <= #text do
    local c = text:sub(at, at)
    local level = text:match("^%-%-%[(=*)%[", at)
    if c:find("%s") then
      skip(select(2, text:find("^%s+", at)))
    elseif level then
      skip(select(2, text:find("]" .. level .. "]", at, true)) or error(line .. ": a comment without end", 0))
    elseif text:find("^%-%-", at) then
      skip((text:find("\n", at, true) or #text + 1) - 1)
    elseif c:find("[%a_]") then
      local word = text:match("^[%w_]+", at)
      add(keywords[word] and "keyword" or "name", word, at + #word - 1)
    elseif text:find("^%.?%d", at) then
      local number = text:match("^0[xX][%x.]+[pP]?[+-]?%x*", at) or text:match("^[%d.]+[eE][+-]?%d+", at)
        or text:match("^[%d.]+", at)
      add("number", tonumber(number) or error(line .. ": a wrong number " .. number, 0), at + #number - 1)
    elseif text:find("^%[=*%[", at) then
      level = text:match("^%[(=*)%[", at)
      local stop = select(2, text:find("]" .. level .. "]", at, true)) or error(line .. ": a string without end", 0)
      add("string", text:sub(at + #level + 2, stop - #level - 2), stop)
    elseif c == '"' or c == "'" then
      local stop = at + 1
      while text:sub(stop, stop) ~= c do
        if stop > #text or text:sub(stop, stop) == "\n" then error(line .. ": a string without end", 0) end
        stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
      end
      add("string", text:sub(at + 1, stop - 1), stop)
    else
      local symbol = c
      for _, one in ipairs(symbols) do
        if text:sub(at, at + #one - 1) == one then
          symbol = one
          break
        end
      end
      add("symbol", symbol, at + #symbol - 1)
    end
  end
  add("end", "end of the text", at)
  return list
end

return function(text)
  local list, at = tokens(text), 1
  local expression, block

  local function fail(wanted)
    local token = list[at]
    error(("%d: %s expected before %s"):format(token.line, wanted, token.text), 0)
  end
  local function is(word)
    local token = list[at]
    return token.text == word and (token.kind == "keyword" or token.kind == "symbol")
  end
  local function accept(word)
    if not is(word) then return false end
    at = at + 1
    return true
  end
  local function expect(word) return accept(word) or fail(word) end
  local function name()
    if list[at].kind ~= "name" then fail("a name") end
    at = at + 1
    return list[at - 1].text
  end
  local function node(tag, fields)
    fields.tag, fields.line = tag, fields.line or list[at].line
    return fields
  end

  local function expressions()
    local values = { expression() }
    while accept(",") do values[#values + 1] = expression() end
    return values
  end

  local function body_of(first, line)
    local parameters = { first }
    expect "("
    while not accept ")" do
      if accept "..." then parameters.vararg = true else parameters[#parameters + 1] = name() end
      if not is ")" then expect "," end
    end
    local body = block()
    expect "end"
    return node("Lambda", { parameters = parameters, body = body, line = line })
  end

  local function constructor()
    local items, line = {}, list[at].line
    expect "{"
    while not accept "}" do
      local key
      if list[at].kind == "name" and list[at + 1].text == "=" and list[at + 1].kind == "symbol" then
        key = node("String", { value = name() })
        expect "="
      elseif accept "[" then
        key = expression()
        expect "]"
        expect "="
      end
      items[#items + 1] = { key = key, value = expression() }
      if not is "}" and not accept ";" then expect "," end
    end
    return node("Table", { items = items, line = line })
  end

  local function arguments()
    if list[at].kind == "string" then
      at = at + 1
      return { node("String", { value = list[at - 1].text }) }
    elseif is "{" then
      return { constructor() }
    end
    expect "("
    if accept ")" then return {} end
    local values = expressions()
    expect ")"
    return values
  end

  local function suffixed()
    local value
    local line = list[at].line
    if accept "(" then
      value = node("Paren", { value = expression(), line = line })
      expect ")"
    else
      value = node("Name", { name = name(), line = line })
    end
    while true do
      line = list[at].line
      if accept "." then
        value = node("Index", { object = value, key = node("String", { value = name() }), line = line })
      elseif accept "[" then
        value = node("Index", { object = value, key = expression(), line = line })
        expect "]"
      elseif accept ":" then
        local method = name()
        value = node("Method", { object = value, name = method, arguments = arguments(), line = line })
      elseif is "(" or is "{" or list[at].kind == "string" then
        value = node("Call", { callee = value, arguments = arguments(), line = line })
      else
        return value
      end
    end
  end

  local function simple()
    local token = list[at]
    if token.kind == "number" or token.kind == "string" then
      at = at + 1
      return node(token.kind == "number" and "Number" or "String", { value = token.text, line = token.line })
    end
    for word, tag in pairs { ["nil"] = "Nil", ["true"] = "True", ["false"] = "False", ["..."] = "Vararg" } do
      if accept(word) then return node(tag, { line = token.line }) end
    end
    if is "{" then return constructor() end
    if accept "function" then return body_of(nil, token.line) end
    return suffixed()
  end

  function expression(limit)
    local left
    local line = list[at].line
    if list[at].kind ~= "string" and unary[list[at].text] then
      at = at + 1
      left = node("Operation", { left = expression(11), line = line })
    else
      left = simple()
    end
    while list[at].kind ~= "string" and (binary[list[at].text] or 0) > (limit or 0) do
      local operator = list[at].text
      at = at + 1
      local right = expression(binary[operator] - ((operator == ".." or operator == "^") and 1 or 0))
      left = node("Operation", { operator = operator, left = left, right = right, line = line })
    end
    return left
  end

  local function names_of()
    local names = {}
    repeat
      names[#names + 1] = name()
      if accept "<" then
        name()
        expect ">"
      end
    until not accept ","
    return names
  end

  local function statement()
    local line = list[at].line
    if accept ";" or accept "break" then
      return nil
    elseif accept "::" then
      name()
      expect "::"
      return nil
    elseif accept "goto" then
      name()
      return nil
    elseif accept "do" then
      local body = block()
      expect "end"
      return node("Do", { body = body, line = line })
    elseif accept "while" then
      local condition = expression()
      expect "do"
      local body = block()
      expect "end"
      return node("While", { condition = condition, body = body, line = line })
    elseif accept "repeat" then
      local body = block()
      expect "until"
      return node("Repeat", { body = body, condition = expression(), line = line })
    elseif accept "if" then
      local conditions, bodies = { expression() }, {}
      expect "then"
      bodies[1] = block()
      while accept "elseif" do
        conditions[#conditions + 1] = expression()
        expect "then"
        bodies[#bodies + 1] = block()
      end
      if accept "else" then bodies[#bodies + 1] = block() end
      expect "end"
      return node("If", { conditions = conditions, bodies = bodies, line = line })
    elseif accept "for" then
      local names = names_of()
      local tag = accept "=" and "For" or expect "in" and "ForIn"
      local values = expressions()
      expect "do"
      local body = block()
      expect "end"
      return node(tag, { names = names, name = names[1], values = values, body = body, line = line })
    elseif accept "function" then
      local target, first = node("Name", { name = name() }), nil
      while is "." or is ":" do
        if list[at].text == ":" then first = "self" end
        at = at + 1
        target = node("Index", { object = target, key = node("String", { value = name() }) })
      end
      return node("Function", { target = target, value = body_of(first, line), line = line })
    elseif accept "local" then
      if accept "function" then
        local own = name()
        return node("Local", { names = { own }, values = { body_of(nil, line) }, recursive = true, line = line })
      end
      local names = names_of()
      return node("Local", { names = names, values = accept "=" and expressions() or {}, line = line })
    elseif accept "return" then
      local values = {}
      if not (is "end" or is "else" or is "elseif" or is "until" or is ";" or list[at].kind == "end") then
        values = expressions()
      end
      return node("Return", { values = values, line = line })
    end
    local value = expression()
    if not is "=" and not is "," then return node("Expression", { value = value, line = line }) end
    local targets = { value }
    while accept "," do targets[#targets + 1] = expression() end
    if accept "=" then return node("Assign", { targets = targets, values = expressions(), line = line }) end
    return node("Return", { values = targets, line = line }) -- several expressions alone
  end

  function block()
    local statements = {}
    while not (is "end" or is "else" or is "elseif" or is "until" or list[at].kind == "end") do
      statements[#statements + 1] = statement()
    end
    return statements
  end

  local statements = block()
  if list[at].kind ~= "end" then fail("a statement") end
  return statements
end
