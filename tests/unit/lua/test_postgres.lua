-- postgres_values.lua: arrays and rows as text, and back; statements that concern one connection of many; placeholders.
local check = require "check"
local json = require "luaserve.json"
local values = require "luaserve.postgres_values"

local null, types = json.null, values.types()
local function text(element) return element end

return {
  arrays_are_read = function()
    for source, expected in pairs {
      ["{}"] = {}, ["{a}"] = { "a" }, ["{a,b c}"] = { "a", "b c" }, ['{"a,b","c}","{"}'] = { "a,b", "c}", "{" },
      ['{"\\"","\\\\",""}'] = { '"', "\\", "" }, ["{NULL,null}"] = { null, null }, ['{"NULL"}'] = { "NULL" },
      ["{{a,b},{c,d}}"] = { { "a", "b" }, { "c", "d" } }, ["{{{a}},{{b}}}"] = { { { "a" } }, { { "b" } } },
      ["[0:1]={a,b}"] = { "a", "b" }, ["[-1:0][2:2]={{a},{b}}"] = { { "a" }, { "b" } },
      ['{"a\\\\\\"b"}'] = { 'a\\"b' }, ["{é}"] = { "é" },
    } do
      check.equal(values.array(source, text, ","), expected)
    end
    local long = ('"\\'):rep(1000000) -- else this does not end
    check.equal(values.array(values.encode({ long }, 1009, types), text, ",")[1] == long, true)
  end,

  other_types_are_learnt = function()
    values.learn(types, 70000, 70001, ";")
    values.learn(types, 70002, nil, nil)
    check.equal(types.decoders[70000]("{(1,1),(0,0);NULL}"), { "(1,1),(0,0)", null })
    check.equal(values.encode({ "a", "b" }, 70000, types), '{"a";"b"}')
    check.equal({ types.decoders[70002], types.known[70002] }, { nil, true })
  end,

  an_array_that_is_cut_off_raises = function()
    local source = '{1,NULL,"a b\\"c",{2,3}}'
    for n = 0, #source - 1 do check.raises("an invalid array", values.array, source:sub(1, n), text, ",") end
    check.equal(values.array(source, text, ","), { "1", null, 'a b"c', { "2", "3" } })
    for _, wrong in ipairs { '{"a"b}', "{{1}2}", "a", '{"a' } do
      check.raises("an invalid array", values.array, wrong, text, ",")
    end
  end,

  elements_have_the_type_of_their_array = function()
    check.equal(types.decoders[1007]("{1,-2,NULL}"), { 1, -2, null })
    check.equal(types.decoders[1016]("{9223372036854775807}"), { math.maxinteger })
    check.equal(types.decoders[1022]("{1,2.5,Infinity,-Infinity}"), { 1.0, 2.5, 1 / 0, -1 / 0 })
    check.equal(types.decoders[1000]("{t,f}"), { true, false })
    check.equal(types.decoders[1231]("{1.50,-12345678901234.5,123456789012345.6,123456789012345678,1234567890123456789,NaN}"),
      { 1.5, -12345678901234.5, "123456789012345.6", 123456789012345678, "1234567890123456789", "NaN" })
    check.equal(types.decoders[1001]('{"\\\\x4100ff"}'), { "A\0\xFF" })
    local nan = types.decoders[1022]("{NaN}")[1]
    check.equal(nan ~= nan, true)
  end,

  lists_become_arrays = function()
    for _, case in ipairs {
      { {}, 1007, "{}" }, { { 1, 2 }, 1007, '{"1","2"}' }, { { null, 1.5 }, 1022, '{NULL,"1.5"}' },
      { { "a", 'b"', "c\\" }, 1009, '{"a","b\\"","c\\\\"}' }, { { { 1 }, { 2 } }, 1007, '{{"1"},{"2"}}' },
      { { true, false }, 1000, '{"true","false"}' }, { { 0.1, 3.0 }, 1022, '{"0.1","3"}' },
      { { "\0\xFF" }, 1001, '{"\\\\x00ff"}' }, { { 0 / 0 }, 1022, '{"nan"}' },
    } do
      check.equal(values.encode(case[1], case[2], types), case[3])
    end
    for _, case in ipairs {
      { { print }, 1007, "element 1 is a function" }, { { 1, { print } }, 1007, "element 1 is a function" },
      { { a = 1 }, 1007, "it is no list" }, { { 1, nil, 3 }, 1007, "it is no list: element 2 is nil; ls.json.null" }, { { 1 }, 23, "its type is integer" },
      { { 1 }, 99999, "its type is unknown (OID 99999)" },
    } do
      local result, wrong = values.encode(case[1], case[2], types)
      check.equal(result, nil)
      check.equal(wrong:find(case[3], 1, true) ~= nil, true)
    end
  end,

  what_was_written_is_read_back = function()
    local letters = { "a", '"', "\\", ",", "{", "}", " ", "NULL", "é", "'", "\n" }
    for n = 0, #letters * #letters - 1 do
      local list = { letters[n % #letters + 1] .. letters[n // #letters + 1], "", null }
      check.equal(values.array(values.encode(list, 1009, types), text, ","), list)
    end
  end,

  rows_of_copy = function()
    check.equal(values.line { 1, "a\tb", "c\nd\re\\", true, null, 1.5 }, "1\ta\\tb\tc\\nd\\re\\\\\ttrue\t\\N\t1.5\n")
    check.equal({ values.line { 1, {} } }, { nil, "column 2 is a table" })
  end,

  statements_for_one_connection = function()
    local function part(found) return found and found:match("^[%a ]*pg:%w*") or found and found:match("^%w+ %w+") end
    for _, case in ipairs {
      { "select 1" }, { "" }, { "discard all", "it would", "it would" }, { "deallocate x", "it would", "it would" },
      { "select 'begin'" }, { "BEGIN", "use pg:transaction", "a transaction" },
      { " \n/* c */ -- d\n start transaction", "use pg:transaction", "a transaction" },
      { "commit", "use pg:transaction", "a transaction" }, { "rollback", "use pg:transaction", "a transaction" },
      { "rollback to savepoint a", "use pg:transaction", nil }, { "rollback to a", "use pg:transaction", nil },
      { "rollback and no chain", "use pg:transaction", "a transaction" }, { "savepoint a", "use pg:transaction", nil },
      { "set a = 1", "it would", "it would" }, { "set locale = 1", "it would", "it would" },
      { "set local a = 1", "it would", nil }, { "SET TRANSACTION read only", "it would", nil },
      { "set constraints all deferred", "it would", nil }, { "settle", nil, nil },
      { "select set_config('a', 'b', false)", "it would", "it would" },
      { "select 1, SET_CONFIG ( $1, $2,false )", "it would", "it would" },
      { "select set_config('a', coalesce($1, ')'), false)", "it would", "it would" },
      { "select set_config('a', 'b', true), set_config('c', 'd', false)", "it would", "it would" },
      { "select set_config('a', ', false)', true), f(false)", nil, nil },
      { "select my_set_config('a', 'b', false)", nil, nil }, { "listen a", "use pg:listen", "use pg:listen" },
      { "copy t (a) from stdin", "use pg:copy", "use pg:copy" }, { "copy t to stdout", "use pg:copy", "use pg:copy" },
      { "copy t from '/stdin'", nil, nil },
      { "select n from t for update", "the lock", nil }, { "(select n from t\n FOR  no key UPDATE of t nowait)", "the lock", nil },
      { "with x as (select 1) select n from t for key share skip locked", "the lock", nil },
      { "select n from t -- for update", nil, nil }, { "select n, 'x for update' as \"for update\" from t", nil, nil },
      { "update t set a = 1 where id = (select id from t limit 1 for update skip locked) returning *", nil, nil },
      { "with x as (select id from t for update) delete from t using x where t.id = x.id", nil, nil },
      { "select n from t where for_update", nil, nil }, { "create policy p on t for update using (true)", nil, nil },
      { "select pg_advisory_lock(8)", "the lock", "the lock" }, { "select a, PG_try_advisory_lock_shared (8)", "the lock", "the lock" },
      { "select pg_advisory_unlock_all()", "the lock", "the lock" }, { "select pg_advisory_xact_lock(8)", "the lock", nil },
      { "select pg_try_advisory_xact_lock_shared(8)", "the lock", nil }, { "select my_pg_advisory_lock(8)", nil, nil },
      { "update job set a = 1 where pg_try_advisory_xact_lock(id) returning id", nil, nil },
      { "create temp table a (b int)", "the table", nil }, { "CREATE local TEMPORARY table a as select 1", "the table", nil },
      { "create or replace temp view a as select 1", "the table", nil }, { "create table temp (a int)", nil, nil },
      { "select 1 into temp a", "the table", nil }, { "create table tempo (a int)", nil, nil },
    } do
      local sql, alone, inside = table.unpack(case, 1, 3)
      check.equal({ sql, part(values.instead(sql, false)), part(values.instead(sql, true)) }, { sql, alone, inside })
    end
  end,

  placeholders_of_others = function()
    for sql, found in pairs {
      ["select ?"] = false, ["select * from t where a = ?"] = "?", ["values (?, ?)"] = "?", ["values (%s)"] = "%s",
      ["a like '%s'"] = false, ["where a = '?'"] = false, ["where a ? 'b'"] = false, ["where j ?| $1"] = false,
      ["a = ? and b = $1"] = false, ["where a > ?;"] = "?", ["limit %d"] = "%s", ["a -- = ?\n"] = false,
    } do
      check.equal(values.placeholder(sql) or false, found)
    end
  end,

  without_libpq_the_call_raises = function()
    local core = require "luaserve.core"
    core.postgres = function() return nil, "this luaserve was built without libpq", "ENOTSUP" end
    package.loaded["luaserve.postgres"] = nil
    local open = require("luaserve.postgres").open
    check.raises("ls.postgres: this luaserve was built without libpq", open, "postgres:///a")
    check.raises("the URL must be a string", open, "mysql:///a")
    check.raises("got another one", open, "host=a password=b")
  end,

  codes_of_sqlstates = function()
    for state, code in pairs { ["23505"] = "EEXIST", ["23503"] = "EINVAL", ["42501"] = "EACCES", XX000 = "EIO",
      ["57P01"] = "ECLOSED", ["57014"] = "ECANCELED", ["40P01"] = "EBUSY" } do
      check.equal(values.code(state), code)
    end
  end,
}
