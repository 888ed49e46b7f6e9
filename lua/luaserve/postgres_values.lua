-- postgres_values.lua - values of PostgreSQL: arrays and JSON as text, names of types, SQLSTATEs, the beginnings of
-- statements. Pure functions.

local json = require "luaserve.json"

local ipairs, tonumber, tostring, type = ipairs, tonumber, tostring, type -- a site may replace the globals

local values = {}

-- The types that a message names, by OID (pg_type.dat of PostgreSQL).
local names = {
  [16] = "boolean", [17] = "bytea", [20] = "bigint", [21] = "smallint", [23] = "integer", [25] = "text",
  [700] = "real", [701] = "double precision", [1042] = "char", [1043] = "varchar", [1082] = "date", [1083] = "time",
  [1114] = "timestamp", [1184] = "timestamp with time zone", [1186] = "interval", [1700] = "numeric", [2950] = "uuid",
}

local function text(element) return element end
local function bytes(element)
  return (element:gsub("^\\x", ""):gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- The types of arrays, and how the text of an element becomes a value.
local elements = {
  [1000] = function(element) return element == "t" end, [1001] = bytes,
  [1005] = tonumber, [1007] = tonumber, [1016] = tonumber, [1028] = tonumber, [1021] = tonumber, [1022] = tonumber,
  [1002] = text, [1003] = text, [1009] = text, [1014] = text, [1015] = text, [1115] = text, [1182] = text, [1183] = text,
  [1185] = text, [1187] = text, [1231] = text, [2951] = text, [199] = json.decode, [3807] = json.decode,
}
local floats = { [1021] = true, [1022] = true }
local special = { NaN = 0 / 0, Infinity = 1 / 0, ["-Infinity"] = -1 / 0 }
local function float(element) return special[element] or tonumber(element) + 0.0 end

-- array(text, element) -> list, of the text of an array such as `{1,NULL,"a b"}` or `{{1},{2}}`; element(text) -> value.
-- An element that is NULL is ls.json.null. Raises for another text. (PostgreSQL manual, "Array Input and Output Syntax")
function values.array(source, element)
  local at = source:find("{", 1, true) -- bounds may precede it: [0:1]={1,2}
  local function invalid() error("ls.postgres: the server has sent an invalid array", 0) end
  local function list()
    local out = json.array {}
    at = at + 1
    while source:byte(at) ~= 125 do -- }
      local c = source:sub(at, at)
      if c == "{" then
        out[#out + 1] = list()
      elseif c == '"' then
        local quoted, after = "", at + 1
        repeat
          local piece, mark, next_at = source:match('^([^"\\]*)(["\\])()', after)
          if not mark then invalid() end
          quoted, after = quoted .. piece, next_at
          if mark == "\\" then quoted, after = quoted .. source:sub(after, after), after + 1 end
        until mark == '"'
        out[#out + 1], at = element(quoted), after
      else
        local word, after = source:match("^([^,}]*)()", at)
        if word:upper() == "NULL" then out[#out + 1] = json.null else out[#out + 1] = element(word) end
        at = after
      end
      local mark = source:byte(at)
      if mark == 44 then at = at + 1 elseif mark ~= 125 then invalid() end -- ,
    end
    at = at + 1
    return out
  end
  return (at and list or invalid)()
end

-- The functions by type for core.postgres_result: the value of a text.
values.decoders = { [114] = json.decode, [3802] = json.decode }
for oid, element in next, elements do
  if floats[oid] then element = float end
  values.decoders[oid] = function(source) return values.array(source, element) end
end

local function quote(value) return '"' .. value:gsub('[\\"]', "\\%0") .. '"' end

-- array_text(list, oid) -> text of an array | nil, what is wrong with an element
local function array_text(list, oid)
  local out = {}
  for i, value in ipairs(list) do
    local kind = type(value)
    if value == json.null then
      value = "NULL"
    elseif kind == "table" and elements[oid] == json.decode then
      value = quote(json.encode(value))
    elseif kind == "table" then
      local text_of, wrong = array_text(value, oid)
      if not text_of then return nil, wrong end
      value = text_of
    elseif oid == 1001 and kind == "string" then
      value = '"\\\\x' .. value:gsub(".", function(c) return ("%02x"):format(c:byte()) end) .. '"'
    elseif kind == "string" or kind == "boolean" or kind == "number" then
      value = quote(kind == "number" and value ~= value and "NaN" or math.type(value) == "float" and ("%.17g"):format(value)
        or tostring(value))
    else
      return nil, ("element %d is a %s"):format(i, kind)
    end
    out[i] = value
  end
  for key in next, list do
    if math.type(key) ~= "integer" or key < 1 or key > #out then
      return nil, "it is no list: ls.json.null stands for NULL"
    end
  end
  return "{" .. table.concat(out, ",") .. "}"
end

-- encode(table, oid) -> the text of a table as a parameter of this type: JSON, or an array | nil, what is wrong
function values.encode(value, oid)
  if oid == 114 or oid == 3802 then return json.encode(value) end
  if elements[oid] then return array_text(value, oid) end
  return nil, ("its type is %s: a table is for json, jsonb and arrays"):format(names[oid] or "unknown (OID " .. oid .. ")")
end

-- line(list) -> the text of a row for COPY ... FROM STDIN: columns are separated by tabs; ls.json.null is \N.
function values.line(list)
  local out = {}
  for i, value in ipairs(list) do
    if value == json.null then
      out[i] = "\\N"
    elseif type(value) == "string" then
      out[i] = value:gsub("[\\\t\n\r]", { ["\\"] = "\\\\", ["\t"] = "\\t", ["\n"] = "\\n", ["\r"] = "\\r" })
    elseif type(value) == "number" or type(value) == "boolean" then
      out[i] = tostring(value)
    else
      return nil, ("column %d is a %s"):format(i, type(value))
    end
  end
  return table.concat(out, "\t") .. "\n"
end

-- bare(sql) -> the statement without what is in quotes and comments.
function values.bare(sql)
  return (sql:gsub("%-%-[^\n]*", " "):gsub("/%*.-%*/", " "):gsub("'[^']*'", "''"):gsub('"[^"]*"', '""')
    :gsub("(%$[%a_]*%$).-%1", "''"))
end

-- The codes by SQLSTATE, or by its class (PostgreSQL manual, appendix A).
local codes = {
  ["23505"] = "EEXIST", ["42P04"] = "EEXIST", ["42P06"] = "EEXIST", ["42P07"] = "EEXIST", ["42701"] = "EEXIST",
  ["42710"] = "EEXIST", ["42501"] = "EACCES", ["3D000"] = "ENOENT", ["53100"] = "ENOSPC", ["53200"] = "ENOMEM",
  ["55P03"] = "EBUSY", ["57014"] = "ECANCELED", ["57P03"] = "EREFUSED", ["25006"] = "EACCES",
  ["22"] = "EINVAL", ["23"] = "EINVAL", ["28"] = "EACCES", ["40"] = "EBUSY", ["42"] = "EINVAL", ["53"] = "ELIMIT",
  ["54"] = "ELIMIT", ["57"] = "ECLOSED", ["08"] = "ECLOSED", ["P0"] = "EINVAL", ["44"] = "EINVAL",
  ["0A"] = "ENOTSUP",
}

-- code(sqlstate) -> the code of a failure
function values.code(sqlstate) return codes[sqlstate] or codes[sqlstate:sub(1, 2)] or "EIO" end

-- What to write in place of statements that concern one connection of many, by their first word. `tx`: also inside of a
-- transaction.
local transaction = "use pg:transaction(fn), whose statements go to one connection"
local one = "it would change one connection of many"
local ended = "a transaction ends with its function: return nil and a reason to undo it"
local instead = {
  begin = { transaction, ended }, start = { transaction, ended }, commit = { transaction, ended },
  ["end"] = { transaction, ended }, rollback = { transaction, false }, abort = { transaction, ended },
  savepoint = { transaction, false }, release = { transaction, false }, prepare = { transaction, ended },
  declare = { transaction, false }, lock = { transaction, false },
  listen = { "use pg:listen(channel, fn)", "use pg:listen(channel, fn)" },
  unlisten = { "use subscription:remove()", "use subscription:remove()" },
  set = { one .. ": use `set local` in pg:transaction, or `alter role ... set`",
    one .. ", also after the end: use `set local`" },
  discard = { one, one }, deallocate = { one, one },
}

local of_transaction = { ["local"] = true, transaction = true, constraints = true } -- after SET

-- instead(sql, in_transaction) -> what to write in place of this statement, or nil
function values.instead(sql, in_transaction)
  local bare = values.bare(sql):lower()
  local word, rest = bare:match("^[%s;]*(%a*)%s*(.*)")
  if word == "copy" and rest:find("from%s+stdin") then return "use pg:copy_in(sql, rows)" end
  if word == "copy" and rest:find("to%s+stdout") then return "use pg:copy_out(sql)" end
  if word == "rollback" and in_transaction and not rest:find("^[%a%s]*to%s") then return ended end
  for arguments in bare:gmatch("%f[%w_]set_config%s*(%b())") do
    if arguments:find(",%s*false%s*%)$") then word, rest = "set", "" end
  end
  if word == "set" and in_transaction and of_transaction[rest:match("^%a*")] then return nil end
  local entry = instead[word]
  return entry and entry[in_transaction and 2 or 1] or nil
end

-- placeholder(sql) -> "?" or "%s" if the statement seems to have such placeholders, which PostgreSQL does not know
function values.placeholder(sql)
  local bare = values.bare(sql)
  if bare:find("$%d") then return nil end
  if bare:find("%%[sd]%f[%W]") then return "%s" end
  return bare:find("[(=,<>]%s*%?%s*%f[%),;%s%z]") and "?" or nil
end

return values
