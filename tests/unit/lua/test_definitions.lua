-- lua/definitions, the definitions for editors: the annotations are well formed, every type is known, every
-- function has a description, its parameters and results; the classes of options have the names of the modules' tables.
-- tests/e2e/test_definitions.py compares the functions and objects with those of the program.
local check = require "check"
local definitions = require "definitions"

local tests = {}
local parsed = definitions.parse()

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
    elseif line.tag == "return" or line.tag == "overload" then
      check_type(rest, where, generics)
    elseif line.tag == "alias" then
      check_type(assert(rest:match("^[%w_.]+ (.+)$"), where), where, generics)
    elseif line.tag == "class" then
      for parent in (rest:match(": (.+)$") or ""):gmatch("[%w_.]+") do
        if not parsed.classes[parent] then error(where .. ": unknown class " .. parent, 0) end
      end
    elseif line.tag ~= "meta" and line.tag ~= "generic" and line.tag ~= "operator" then
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
  check.equal(count > 100, true)
end

-- The class of each table of options.
local classes = {
  ["ls.listen"] = "ListenOptions", ["ls.config"] = "ConfigOptions", ["ls.tcp"] = "TcpOptions",
  ["ls.connect"] = "ConnectOptions", ["ls.listen: tls"] = "TlsOptions", ["ls.tcp: tls"] = "TlsOptions",
  ["ls.connect: tls"] = "TlsClientOptions", ["sock:starttls"] = "StarttlsOptions", ["ls.udp"] = "UdpOptions",
  ["ls.udp: multicast"] = "Multicast", ["ls.udp_connect"] = "UdpConnectOptions", ["ls.notify"] = "NotifyOptions",
  ["app:get"] = "RouteOptions", ["app:inject"] = "InjectRequest", ["app:static"] = "StaticOptions",
  ["ls.dict"] = "DictOptions", ["ls.channel"] = "ChannelOptions", ["ls.websocket"] = "WebSocketClientOptions",
  ["app:ws"] = "WebSocketRouteOptions", ["app:ws: compress"] = "WebSocketCompression",
}

function tests.the_names_of_options()
  local seen = {}
  for _, module in ipairs { "options", "tcp", "tls", "udp", "notify", "app", "dict", "channel", "ws", "ws_client" } do
    local found, loaded = pcall(require, "luaserve." .. module)
    for call, known in pairs(found and loaded.known or {}) do
      local class = classes[call]
      if not class then error(call .. " has no class of options", 0) end
      seen[class] = true
      local fields = definitions.fields(parsed, "luaserve." .. class)
      for name in pairs(known) do
        if not fields[name] then error(class .. " lacks " .. name .. ", an option of " .. call, 0) end
      end
      for name in pairs(fields) do
        local of_server = call == "sock:starttls" and loaded.known["ls.tcp: tls"][name] -- its other role
        if not known[name] and not of_server then
          error(class .. " has " .. name .. ", which is no option of " .. call, 0)
        end
      end
    end
  end
  check.equal(seen.ListenOptions and seen.TcpOptions and seen.StaticOptions, true)
end

return tests
