-- postgres_values.lua - values of PostgreSQL: arrays and JSON as text, names of types, SQLSTATEs, the beginnings of
-- statements. Pure functions.

local core = require "luaserve.core"
local json = require "luaserve.json"

local ipairs, tonumber, tostring, type = ipairs, tonumber, tostring, type -- a site may replace the globals
local number_text = core.number_text

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
local function boolean(element) return element == "t" end
local special = { NaN = 0 / 0, Infinity = 1 / 0, ["-Infinity"] = -1 / 0 }
local function float(element) return special[element] or tonumber(element) + 0.0 end

-- An element of an array of numeric: see push_numeric of postgres_object_libpq.c.
local function numeric(element)
  local _, digits = element:gsub("%d", "")
  local most = element:find(".", 1, true) and 15 or 18
  return digits > 0 and digits <= most and tonumber(element) or element
end

-- How the text of an element of an array becomes a value, by the type of the element; of all others it is a string.
local scalars = {
  [16] = boolean, [17] = bytes, [20] = tonumber, [21] = tonumber, [23] = tonumber, [26] = tonumber, [700] = float,
  [701] = float, [1700] = numeric, [114] = json.decode, [3802] = json.decode,
}

-- The types of arrays that are known from the start, and those of their elements.
local arrays = {
  [1000] = 16, [1001] = 17, [1002] = 18, [1003] = 19, [1005] = 21, [1007] = 23, [1009] = 25, [1014] = 1042, [1015] = 1043,
  [1016] = 20, [1021] = 700, [1022] = 701, [1028] = 26, [1115] = 1114, [1182] = 1082, [1183] = 1083, [1185] = 1184,
  [1187] = 1186, [1231] = 1700, [199] = 114, [2951] = 2950, [3807] = 3802,
}

-- array(text, element, mark) -> list, of the text of an array such as `{1,NULL,"a b"}` or `{{1},{2}}`; element(text) ->
-- value; `mark` is between elements. An element that is NULL is ls.json.null. Raises for another text. (PostgreSQL manual,
-- "Array Input and Output Syntax")
function values.array(source, element, mark)
  local at = source:find("{", 1, true) -- bounds may precede it: [0:1]={1,2}
  local word_pattern, mark_byte = "^([^" .. mark .. "}]*)()", mark:byte()
  local function invalid() error("ls.postgres: the server has sent an invalid array", 0) end
  local function list()
    local out = json.array {}
    at = at + 1
    while source:byte(at) ~= 125 do -- }
      local c = source:sub(at, at)
      if c == "{" then
        out[#out + 1] = list()
      elseif c == '"' then
        local sign, after = nil, at + 1
        repeat
          sign, after = source:match('^[^"\\]*(["\\])()', after)
          if not sign then invalid() end
          if sign == "\\" then after = after + 1 end
        until sign == '"'
        out[#out + 1], at = element((source:sub(at + 1, after - 2):gsub("\\(.)", "%1"))), after
      else
        local word, after = source:match(word_pattern, at)
        if word:upper() == "NULL" then out[#out + 1] = json.null else out[#out + 1] = element(word) end
        at = after
      end
      local byte = source:byte(at)
      if byte == mark_byte then at = at + 1 elseif byte ~= 125 then invalid() end
    end
    at = at + 1
    return out
  end
  return (at and list or invalid)()
end

-- learn(types, oid, element, mark): `types` have this one, which is an array if `element`, the type of its elements, is not nil.
function values.learn(types, oid, element, mark)
  local decode = scalars[element] or text
  types.known[oid] = true
  types.arrays[oid] = element and { element = element, mark = mark }
  types.decoders[oid] = element and function(source) return values.array(source, decode, mark) end
end

-- types() -> the types that a pool knows: `known`, a set; `arrays`; `decoders`, functions for core.postgres_result; the
-- `statements` whose types it knows, and their `count`, in an `epoch` of the core.
function values.types()
  local types = { known = {}, arrays = {}, decoders = { [114] = json.decode, [3802] = json.decode },
    statements = {}, count = 0, epoch = 0 }
  for oid, element in next, arrays do
    types.known[element] = true
    values.learn(types, oid, element, ",")
  end
  return types
end

-- The query for what learn() needs about a list of types. An array is a type that its element names as such.
values.query = [[select t.oid, nullif(coalesce(nullif(e.typbasetype, 0), e.oid), 0) as element, e.typdelim::text as mark
  from pg_catalog.pg_type t left join pg_catalog.pg_type e on e.oid = t.typelem and e.typarray = t.oid where t.oid in (%s)]]

local function quote(value) return '"' .. value:gsub('[\\"]', "\\%0") .. '"' end

-- array_text(list, array) -> text of an array | nil, what is wrong with an element
local function array_text(list, array)
  local out = {}
  for i, value in ipairs(list) do
    local kind = type(value)
    if value == json.null then
      value = "NULL"
    elseif kind == "table" and scalars[array.element] == json.decode then
      value = quote(json.encode(value))
    elseif kind == "table" then
      local text_of, wrong = array_text(value, array)
      if not text_of then return nil, wrong end
      value = text_of
    elseif array.element == 17 and kind == "string" then
      value = '"\\\\x' .. value:gsub(".", function(c) return ("%02x"):format(c:byte()) end) .. '"'
    elseif kind == "string" or kind == "boolean" or kind == "number" then
      value = quote(kind == "number" and number_text(value) or tostring(value))
    else
      return nil, ("element %d is a %s"):format(i, kind)
    end
    out[i] = value
  end
  for key in next, list do
    if math.type(key) ~= "integer" or key < 1 or key > #out then
      return nil, ("it is no list: element %d is nil; ls.json.null stands for NULL"):format(#out + 1)
    end
  end
  return "{" .. table.concat(out, array.mark) .. "}"
end

-- encode(table, oid, types) -> the text of a table as a parameter of this type: JSON, or an array | nil, what is wrong
function values.encode(value, oid, types)
  if scalars[oid] == json.decode then return json.encode(value) end
  if types.arrays[oid] then return array_text(value, types.arrays[oid]) end
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
    elseif type(value) == "number" then
      out[i] = number_text(value)
    elseif type(value) == "boolean" then
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

-- is_stale(sqlstate) -> whether a statement that was prepared before may have failed because a table or a type has changed
-- since then: its result has other columns, a name or a type does not exist, a parameter has another type.
function values.is_stale(sqlstate)
  return sqlstate:find("^42") ~= nil or sqlstate == "0A000" or sqlstate == "26000" or sqlstate == "XX000"
    or sqlstate == "22P02" or sqlstate == "22P03"
end

-- The types of the parameters of a statement (the second %s), as it would be prepared now.
values.same = [[%sprepare luaserve_now as %s
; select parameter_types::oid[]::text as types from pg_prepared_statements where name = 'luaserve_now'; deallocate luaserve_now]]

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

local in_vain = "the lock would end with this statement: run it in pg:transaction(fn), as in tx:one(...)"
local kept_lock = "the lock would stay with one connection of many: use pg_advisory_xact_lock in pg:transaction(fn)"
local temporary = "the table would stay with one connection of many: create it in pg:transaction(fn), with `on commit drop`"
local row_locks = { "for update", "for no key update", "for share", "for key share" }
local writes = { "insert", "update", "delete", "merge" }

-- locks_in_vain(bare, word) -> whether the statement, whose first word this is, locks and does not write
local function locks_in_vain(bare, word)
  if word ~= "select" and word ~= "with" and word ~= "" then return false end
  local found, count = bare:find("%f[%w_]pg_[%l_]*advisory_xact_lock[%l_]*%s*%(") ~= nil, nil
  bare = bare:gsub("%s+", " ")
  for _, words in ipairs(row_locks) do
    bare, count = bare:gsub("%f[%w_]" .. words .. "%f[^%w_]", "")
    found = found or count > 0
  end
  for _, verb in ipairs(writes) do found = found and not bare:find("%f[%w_]" .. verb .. "%f[^%w_]") end
  return found
end

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
  if bare:find("%f[%w_]pg_[%l_]*advisory_[un]*lock[%l_]*%s*%(") then return kept_lock end
  if not in_transaction then
    if locks_in_vain(bare, word) then return in_vain end
    local kind = (word == "create" and rest or word == "select" and bare:match("%f[%w_]into%s+(.*)") or "")
      :gsub("^or%s+replace%s+", ""):gsub("^local%s+", ""):gsub("^global%s+", ""):match("^[%w_]*")
    if kind == "temp" or kind == "temporary" then return temporary end
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
