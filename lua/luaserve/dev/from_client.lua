-- from_client.lua - dev mode warns of lines of a handler that put what a client sends where it is read as more than a text: paths,
-- SQL, HTML, commands, patterns and addresses.

local site = require "luaserve.dev.site"

local warn = site.warn

local from_client = {}

local sent = { "req%.[%a_]+[.%[][\"']?[%w_]+[\"']?%]?", "req%.path%f[^%w_]", "req:form%(%)%.[%w_]+", "req:json%b()%.[%w_]+", "req:body%(%)" }
local by_site = "^req%.[su][%a_]*[.%[]" -- req.session and req.user

-- decides(value, text) -> whether an if of the function looks at more than whether there is this value, or the function gives it another one.
local function decides(value, text)
  value = value:gsub("%W", "%%%0") .. "%f[^%w_]"
  text = text:gsub("if%s+" .. value .. "%s+then", ""):gsub("if%s+not%s+" .. value .. "%s+then", "")
  return text:find("%f[%w_]if%f[^%w_][^\n]*%f[%w_.]" .. value) or text:find("\n%s*" .. value .. "%s*=[^=]")
end

-- sender(word, text) -> whether the expression at the start of a text is what the client sends, and nothing decides about it: one of
-- `sent`, or a local of the function with it, or with a form or JSON of which it is a field.
local function sender(word, text)
  local name, field = word:match("^([%a_][%w_]*)(%.?)")
  local value = name and text:match("local%s+" .. name .. "%s*=%s*([^\n]*)")
  for _, pattern in ipairs(sent) do
    local direct, of_local = word:match("^" .. pattern), value and value:match("^" .. pattern)
    if of_local and field == "" or field == "." and value and value:find("^req:[fj][%a_]+%b()%s*$") then direct, of_local = name, of_local or value end
    if direct then return not (of_local or direct):find(by_site) and not decides(direct, text) end
  end
  return false
end

-- joined(arguments, text) -> whether a text of these arguments is put together, by .. or a format, with what the client sends.
local function joined(arguments, text)
  for at in arguments:gmatch("%.%.[%s(]*()[%a_]") do
    if sender(arguments:sub(at), text) then return true end
  end
  for values in arguments:gmatch("%f[%w]format%s*(%b())") do
    for at in values:gmatch("[,(]%s*()[%a_]") do
      if sender(values:sub(at), text) then return true end
    end
  end
  return false
end

-- unseen(first, text) -> what the client sends in the first argument of a call, and the local of the function that has it, if nothing
-- else in the function looks at it; nil: there is no such thing.
local function unseen(first, text)
  for _, pattern in ipairs(sent) do
    local value, name = first:match(pattern), nil
    for word in (value and "" or first:gsub('%b""', "")):gmatch("%f[%w_.][%a_][%w_]*") do
      local from = text:match("local%s+" .. word .. "%s*=%s*(" .. pattern .. ")%s*\n")
      if from then value, name = from, word end
    end
    local shown = (name or value or ""):gsub("%W", "%%%0")
    local rest = text:gsub("if%s+not%s+" .. shown .. "%s+then", ""):gsub("local%s+" .. (name or "%z") .. "%s*=[^\n]*", "")
    if value and not value:find(by_site) and select(2, rest:gsub("%f[%w_.]" .. shown .. "%f[^%w_]", "")) == 1 then return value, shown end
  end
end

local function path(arguments, text) return (unseen(arguments:match("^%(%s*([^,]*)"), text)) end

-- A path, or an address, that begins with what the client sends.
local function whole(arguments, text)
  local first = arguments:match("^%(%s*([^,]*)")
  local value, shown = unseen(first, text)
  if not arguments:find("root%s*=") and (first:find("^" .. (shown or "%z")) or first:find("^[\"']%.?/?[\"']%s*%.%.%s*" .. (shown or "%z"))) then return value end
end

local statement = site.set_of "select insert update delete replace with"

local function sql(arguments, text)
  return statement[(arguments:match("^%(%s*%(?[\"'%[]+%s*(%a+)%s") or ""):lower()] and joined(arguments, text)
end

local function pattern(arguments, text)
  local first = arguments:match("^%(%s*(.*)%)$")
  return sender(first, text) and not first:find(",%s*true%s*$")
end

local function command(arguments, text) return joined(arguments, text) or sender(arguments:sub(2), text) end

local file_advice = "the path of %s has what the client sends, such as ../site.lua: write ls.safe_join(\"files\", %s), which is nil for a path outside of the folder"
local command_advice = "the client chooses what the command of %s does, as by ;reboot: write ls.process{ \"program\", value }, which needs no shell"
local pattern_advice = "%s takes what the client sends as a pattern, where . stands for each letter: write find(value, 1, true)"

local rules = { -- { the call, what finds what the client sends in its arguments, the advice }
  { "io%.open", path, file_advice },
  { "io%.lines", path, file_advice },
  { "ls%.file%.%a+", path, file_advice },
  { "[%a_][%w_]*:file", whole, "the client chooses the file that %s sends, such as site.lua: give it the option { root = \"files\" }" },
  { "[%a_][%w_]*:redirect", whole, "the client chooses where %s leads, as to https://evil.example: pass on a path of this site only, as in "
    .. "if not next:find(\"^/[^/\\\\]\") then next = \"/\" end" },
  { "[%a_][%w_.]*:%a+", sql, "the SQL of %s has what the client sends, which may change the statement: write it with ?, or $1 of PostgreSQL, and the value as an argument" },
  { "res:html", joined, "the page of %s has what the client sends, such as a script: write ls.html.escape(value), or a template" },
  { "io%.popen", command, command_advice },
  { "os%.execute", command, command_advice },
  { "[%a_][%w_.]*:find", pattern, pattern_advice },
  { "[%a_][%w_.]*:g?match", pattern, pattern_advice },
  { "[%a_][%w_.]*:gsub", pattern, pattern_advice },
}

-- from_client.check(lines, info): warns of such lines of a function.
function from_client.check(lines, info)
  local text = table.concat(lines, "\n"):gsub("%-%-[^\n]*", "")
  for _, rule in ipairs(rules) do
    for call, at in text:gmatch("%f[%w_](" .. rule[1] .. ")%s*()%(") do
      local arguments = text:match("^%b()", at)
      local value = arguments and rule[2](arguments, text)
      if value then
        local _, breaks = text:sub(1, at):gsub("\n", "")
        warn(info.short_src .. ":" .. info.linedefined + breaks, rule[3], call, value == true and call or value)
      end
    end
  end
end

return from_client
