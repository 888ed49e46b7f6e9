"""ls.postgres: values, errors, transactions, limits, lost and stopped servers, notifications, COPY, fake servers."""
# sanitizers: asan; test_cron and test_cluster use PostgreSQL on several threads
# long; it starts servers of PostgreSQL
# wine: none; there is no libpq
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import unittest

from harness import (E2E, LUASERVE, SANITIZER, SLOW, WAIT, app_site, free_port, in_parallel, run_program, temporary_folder,
                     write_text)
from harness.chunks import ROUTE, SiteChunks
from harness.postgres import MISSING, Postgres

PRELUDE = app_site(r"""
ls.config { threads = 4 }
local pg = ls.postgres("@URL@", { connections = 4, timeout = 300 })
local quick = ls.postgres("@URL@&application_name=quick", { connections = 4, timeout = @QUICK@ })
local FIRST = "create table item (id serial primary key, name text unique, n bigint check (n > 0), data bytea)"
pg:migrate { FIRST }
local env = { FIRST = FIRST, pg = pg, quick = quick, ls = ls, null = ls.json.null }
app:get("/hello", function() return "hello" end)
app:get("/deadline", { timeout = 1 }, function() return pg:one("select pg_sleep(1000) as deadline") end)
app:get("/transaction", { timeout = 1 }, function()
  return pg:transaction(function(tx)
    tx:exec("insert into item(name) values('of a deadline')")
    ls.sleep(1000)
  end)
end)
local got = ls.dict("got")
pg:listen("news", function(payload, channel) got:incr(channel .. " " .. payload) end)
app:get("/got", function() return got:keys() end)
""").replace("app:get", ROUTE + "app:get", 1)
QUICK = 5  # seconds
BUILT = "PostgreSQL: libpq" in run_program(["--version"])[1]
LACKS = MISSING or (None if BUILT else "this luaserve has no libpq")


class Case(SiteChunks):
    @classmethod
    def setUpClass(cls):
        if LACKS:
            raise unittest.SkipTest(LACKS)
        cls.pg = Postgres()
        cls.addClassCleanup(cls.pg.cleanup)
        cls.SITE = PRELUDE.replace("@URL@", cls.pg.url).replace("@QUICK@", str(QUICK))
        super().setUpClass()

    def stat(self, name):
        return self.run_lua("return ls.stats().postgres_%s" % name)[0]

    def connections(self):
        """The number of connections of the pool `pg`, with that for notifications."""
        return int(self.pg.psql("select count(*) from pg_stat_activity where application_name = 'luaserve'"))

    def running(self, text):
        """The number of statements that the server runs now and that contain this text."""
        return int(self.pg.psql("select count(*) from pg_stat_activity where state = 'active' and query like '%%%s%%' "
                                "and pid <> pg_backend_pid()" % text))


class Statements(Case):
    def setUp(self):
        super().setUp()
        self.run_lua("return pg:exec 'delete from item'")

    # ---- values ----------------------------------------------------------------------------------------------------

    def test_values_come_back_by_their_types(self):
        for sql, expected in (
                ("1::smallint", 1), ("(-2147483648)::integer", -2147483648), ("9223372036854775807", 9223372036854775807),
                ("2::oid", 2), ("0.1::real", 0.1), ("0.1::float8", 0.1), ("1e300::float8", 1e300), ("true", True),
                ("false", False), ("1.10::numeric", 1.1), ("'é'::text", "é"), ("'a'::char(3)", "a  "),
                ("'{\"a\":[1,null]}'::json", {"a": [1, None]}), ("'[]'::jsonb", []), ("'x'::jsonb", None),
                ("date '2026-11-27'", "2026-11-27"), ("timestamp '2026-11-27 10:00'", "2026-11-27 10:00:00"),
                ("interval '1 day'", "1 day"), ("'00000000-0000-0000-0000-000000000001'::uuid",
                                              "00000000-0000-0000-0000-000000000001"),
                ("'{{1,2},{3,4}}'::bigint[]", [[1, 2], [3, 4]]),
                ("array['a,b','\"','\\','', 'NULL', null]", ["a,b", '"', "\\", "", "NULL", None]),
                ("array['{\"a\":1}'::jsonb]", [{"a": 1}]), ("'{1.5,1,1234567890.123456,NaN}'::numeric[]", [1.5, 1, "1234567890.123456", "NaN"]), ("'(1,2)'::point", "(1,2)")):
            with self.subTest(sql):
                if sql == "'x'::jsonb":
                    self.fails("return pg:one [=[select %s]=]" % sql, "invalid input syntax for type json", "EINVAL", "22P02")
                else:
                    self.assertEqual(self.run_lua("return pg:one([=[select %s as v]=])" % sql)[0], {"v": expected})
        self.assertEqual(self.run_lua("local r = pg:one [[select 'NaN'::float8 as a, '-Infinity'::float8 as b, null as c]] "
                                      "return r.a ~= r.a, r.b == -math.huge, r.c == nil, math.type(pg:one('select 2::real as f').f)"),
                         [True, True, True, "float"])

    def test_a_numeric_is_a_number_with_all_its_digits_or_a_string(self):
        """By its digits and those of the column: the same column does not give a number by hand and a string with other rows."""
        for sql, expected in (
                ("19.99::numeric(12,2)", 19.99), ("3::numeric(12,2)", 3.0), ("-0.05::numeric", -0.05), ("7::numeric(10)", 7),
                ("9999999999999.99::numeric(15,2)", 9999999999999.99), ("3::numeric(15,2)", 3.0), ("3::numeric(16,2)", "3.00"),
                ("3::numeric(18)", 3), ("3::numeric(19)", "3"), ("999999999999999999::numeric", 999999999999999999),
                ("1000000000000000000::numeric", "1000000000000000000"), ("0.123456789012345678::numeric", "0.123456789012345678"),
                ("sum(n)", 3), ("sum(n * 0.1)", 0.3), ("avg(n)", "1.5000000000000000"), ("avg(n)::float8", 1.5),
                ("'NaN'::numeric", "NaN"), ("sum(0.10::numeric(8,2) * n)", 0.3)):
            with self.subTest(sql):
                value = self.run_lua("return pg:one([=[select %s as v from (values (1::bigint), (2)) as t(n)]=]).v" % sql)
                self.assertEqual((value[0], type(value[0])), (expected, type(expected)))

    def test_rows_by_their_columns(self):
        self.assertEqual(self.run_lua("""
          pg:exec "create table made (id serial primary key, tags text[], j jsonb, \\"Big\\" int default 5)"
          local row = pg:insert("public.made", { tags = { "a", "b" }, j = { x = 1 } })
          local changes = pg:transaction(function(tx)
            assert(tx:insert("made", { Big = null }, { returning = { "Big", "id" } }).id == 2)
            return tx:update("made", { j = { 7 } }, { id = { 1, 2, 3 } })
          end)
          return row, changes, pg:update("made", { tags = {} }, { Big = { null, 9 } }, { returning = { "id", "tags" } }),
            pg:delete("made", { id = 2, j = null }), pg:delete("made", { id = {} }), pg:delete("made", { id = 1 }, { returning = "*" })[1].id
        """), [{"id": 1, "tags": ["a", "b"], "j": {"x": 1}, "Big": 5}, 2, [{"id": 2, "tags": []}], 0, 0, 1])
        self.fails("""return pg:insert("made", { big = 1 })""", 'pg:insert: ', "EINVAL", "42703")
        self.fails("""return pg:update("made", { j = 1 }, { idd = 1 })""", 'column "idd" does not exist', "EINVAL", "42703")
        for call, at in (("insert('made', { Big = 1, tags = { 'a', nil, 'b' } })", "2 (tags)"), ("update('made', { tags = { 'a', nil, 'b' } }, { id = 1 })", "1 (tags)"),
                         ("exec('update made set tags = $2 where id = $1', 1, { 'a', nil, 'b' })", "2 (tags)"), ("query('select $1::text[]', { 'a', nil, 'b' })", "1")):
            self.raises("return pg:" + call, "parameter $%s: it is no list: element 2 is nil; ls.json.null stands for NULL" % at)
        self.raises("""return pg:update("made", { j = 1 }, {})""", "pg:update: the condition is missing or empty")
        self.run_lua("return pg:exec 'drop table made'")

    def test_parameters_become_what_the_statement_wants(self):
        for cast, value, expected in (
                ("int", "7", 7), ("int", "7.0", 7), ("bigint", "math.mininteger", -9223372036854775808),
                ("float8", "0.1", 0.1), ("float8", "1/3", 1 / 3), ("text", "12", "12"), ("text", "true", "true"),
                ("bool", "false", False), ("numeric", "'1.50'", 1.5), ("int", "'8'", 8), ("text", "'é'", "é"),
                ("text", "ls.buffer('ab')", "ab"), ("jsonb", "{ a = { 1, null } }", {"a": [1, None]}),
                ("json", "ls.json.array {}", []), ("jsonb", "'[1]'", [1]), ("int[]", "{ 1, null, 3 }", [1, None, 3]),
                ("text[]", "{ 'a b', '\"', '\\\\', 'NULL', '', null }", ["a b", '"', "\\", "NULL", "", None]),
                ("jsonb[]", "{ { a = 1 } }", [{"a": 1}]), ("int[]", "'{4}'", [4])):
            with self.subTest(cast=cast, value=value):
                self.assertEqual(self.run_lua("return pg:one('select $1::%s as v', %s)" % (cast, value))[0], {"v": expected})
        self.assertEqual(self.run_lua("return pg:one('select $1::int is null and $2::text is null as v', nil, null)"),
                         [{"v": True}])

    def test_bytes(self):
        self.assertEqual(self.run_lua(r"""
            local all = {}
            for i = 0, 255 do all[i + 1] = string.char(i) end
            all = table.concat(all)
            pg:exec("insert into item(name, data) values($1, $2)", "bytes", all)
            pg:exec("insert into item(name, data) values($1, $2)", "buffer", ls.buffer(all, all))
            pg:exec("insert into item(name, data) values($1, $2)", "\\x41", "\\x41")
            local function data(name) return pg:one("select data from item where name = $1", name).data:tostring() end
            return data("bytes") == all, data("buffer") == all .. all, data("\\x41"),
              pg:one("select array[$1::bytea] as list", all).list[1] == all,
              pg:one("select $1::bytea[] as list", { all }).list[1] == all,
              #pg:one("select ''::bytea as d").d
        """), [True, True, "\\x41", True, True, 0])
        self.raises(r"return pg:one('select $1::text', 'a\0b')", "parameter $1 has a zero byte")
        self.raises(r"return pg:one('select $1::text', ls.buffer('a\0b'))", "parameter $1 has a zero byte")

    def test_results(self):
        self.assertEqual(self.run_lua("return pg:exec('insert into item(name) values($1), ($2)', 'a', 'b')"), [{"changes": 2}])
        self.assertEqual(self.run_lua("return pg:query('select name from item order by name')"), [[{"name": "a"}, {"name": "b"}]])
        self.assertEqual(self.run_lua("return pg:query('select name from item where false')"), [[]])
        self.assertEqual(self.run_lua("return pg:one('select name from item where false')"), [None])
        self.assertEqual(self.run_lua("return pg:one('insert into item(name) values($1) returning name', 'c')"), [{"name": "c"}])
        self.assertEqual(self.run_lua("return pg:exec('create table if not exists item()')"), [{"changes": 0}])
        self.assertEqual(self.run_lua("return pg:query('create table if not exists item()')"), [[]])
        self.assertEqual(self.run_lua("return pg:query('')"), [[]])
        self.assertEqual(self.run_lua("return pg:one('select generate_series(1, 100000) as n').n"), [1])

    # ---- calls that are wrong ----------------------------------------------------------------------------------------

    def test_wrong_calls_raise(self):
        for code, message in (
                ("pg.exec('x')", "'pg:exec' is a method of a pool: call it with a colon, as in pg:exec(sql)"),
                ("pg:exec(1)", "pg:exec: the statement must be a string; got 1"),
                ("pg:exec()", "pg:exec: the statement must be a string; got nil"),
                ("pg:exec('select 1\\0')", "the statement has a zero byte"),
                ("pg:qery('x')", 'a pool has no "qery"; did you mean \'query\'?'),
                ("pg:query('select * form item')", '/site: syntax error at or near "form" at character 10 in: select * form item'),
                ("pg:query('select * from other')", 'relation "other" does not exist at character 15'),
                ("pg:query('select no from item')", 'column "no" does not exist'),
                ("pg:exec('insert into item(name) values(?)', 1)", "the parameters of PostgreSQL are $1, $2, not ?"),
                ("pg:query('select $1::int')", "the statement has 1 parameter; got 0 values"),
                ("pg:query('select $1::int', 1, 2)", "the statement has 1 parameter; got 2 values"),
                ("pg:query('select 1', 1)", "the statement has 0 parameters; got 1 value"),
                ("pg:query('select 1; select 2')", "a call takes one statement, pg:migrate several"),
                ("pg:query('select $1::int', {})", "parameter $1: its type is integer: a table is for json, jsonb and arrays"),
                ("pg:query('select $1::int', print)", "parameter $1 must be nil, a boolean, a number"),
                ("pg:exec('begin')", "use pg:transaction(fn)"), ("pg:exec('  /* x */ COMMIT')", "use pg:transaction(fn)"),
                ("pg:exec('set work_mem = 1')", "use `set local` in pg:transaction"),
                ("pg:exec('listen a')", "use pg:listen(channel, fn)"),
                ("pg:rows('select * from item for update')", "run it in pg:transaction(fn), as in tx:one(...)"),
                ("pg:exec('copy item from stdin')", "use pg:copy_in(sql, rows)"),
                ("pg:exec('copy item to stdout')", "use pg:copy_out(sql)"),
                ("pg:copy_in('select 1', {})", 'pg:copy_in: the statement must be "copy ... from stdin"; got "select 1"'),
                ("pg:copy_in('copy item from stdin', 1)", "the rows must be a list or a function"),
                ("pg:copy_in('copy item(name) from stdin', { 7 })", "row 1 must be a string or a list of values; got 7"),
                ("pg:copy_in('copy item(name) from stdin', { { print } })", "row 1 must be a string or a list of values; column 1 is a function"),
                ("pg:copy_out('copy item from stdin')", 'pg:copy_out: the statement must be "copy ... to stdout"'),
                ("pg:transaction(1)", "pg:transaction: the argument must be a function(tx); got 1"),
                ("pg:transaction(function() end, 'extra')", "too many arguments for pg:transaction(fn)"),
                ("pg:transaction(function(tx) tx:copy_in('copy item from stdin', {}, 'extra') end)", "too many arguments for tx:copy_in"),
                ("pg:migrate('x')", "pg:migrate: the argument must be a list"), ("pg:migrate{ 1 }", "migration 1 must be a string"),
                ("pg:listen('')", "the channel must be a string of 1 to 63 bytes"),
                ("pg:listen(('x'):rep(64))", "the channel must be a string of 1 to 63 bytes"),
                ("pg:listen('x', 1)", "the second argument must be a function(payload); got 1"),
                ("ls.postgres('host=x password=hunter2')", "the URL must be a string such as"),
                ("ls.postgres('postgres://u:hunter2@[h/d')", "end of string reached when looking for matching"),
        ):
            with self.subTest(code):
                results = self.results("return " + code)
                self.assertFalse(results[0], results)
                self.assertIn(message, results[1])
                self.assertNotIn("hunter2", results[1])
        self.assertEqual(self.run_lua("return #pg:listen(('x'):rep(63)) > 63, ls.postgres('postgres://h/d', { connections = 1000 }) ~= nil"),
                         [True, True])

    def test_failures_have_a_code_and_a_sqlstate(self):
        self.run_lua("return pg:exec([[insert into item(name) values('a')]])")
        for code, message, error, state in (
                ("pg:exec([[insert into item(name) values('a')]])",
                 'duplicate key value violates unique constraint "item_name_key" (Key (name)=(a) already exists.) in: insert', "EEXIST", "23505"),
                ("pg:exec([[insert into item(n) values(0)]])", "violates check constraint", "EINVAL", "23514"),
                ("pg:one('select 1/0')", "division by zero in: select 1/0", "EINVAL", "22012"),
                ("pg:one('select $1::int', 'x')", 'invalid input syntax for type integer: "x"', "EINVAL", "22P02"),
                ("pg:exec('create table item()')", 'relation "item" already exists', "EEXIST", "42P07"),
                ("pg:exec([[do $$ begin raise exception 'no' using errcode = '40001'; end $$]])", "no", "EBUSY", "40001"),
                ("pg:exec([[do $$ begin raise exception 'too much' using errcode = '53300'; end $$]])", "too much", "ELIMIT", "53300"),
                ("pg:exec([[do $$ begin raise exception 'strange' using errcode = 'XX000'; end $$]])", "strange", "EIO", "XX000"),
                ("pg:copy_in('copy item(n) from stdin', { 'x\\n' })", 'invalid input syntax for type bigint: "x"', "EINVAL", "22P02"),
                ("quick:migrate { FIRST, 'create table item ()' }", "migration 2: ", "EEXIST", "42P07")):
            with self.subTest(code):
                self.fails("return " + code, message, error, state)

    # ---- transactions ------------------------------------------------------------------------------------------------

    def names(self):
        return [row["name"] for row in self.run_lua("return pg:query('select name from item order by name')")[0]]

    def test_transactions(self):
        self.assertEqual(self.run_lua("return pg:transaction(function(tx) tx:exec([[insert into item(name) values('a')]]) return 1, nil, 3 end)"),
                         [1, None, 3])
        self.assertEqual(self.run_lua("return pg:transaction(function(tx) end)"), [True])
        self.assertEqual(self.run_lua("return pg:transaction(function(tx) tx:exec([[insert into item(name) values('b')]]) return nil, 'no', 'EX' end)"),
                         [None, "no", "EX"])
        self.raises("return pg:transaction(function(tx) tx:exec([[insert into item(name) values('c')]]) error('oops') end)", "oops")
        self.fails("return pg:transaction(function(tx) tx:exec([[insert into item(name) values('d')]]) pcall(tx.exec, tx, [[insert into item(name) values('a')]]) "
                   "local row, e = ls.try(tx.one, tx, 'select 1') assert(e.message:find('duplicate')) return 'fine' end)", "duplicate key", "EEXIST", "23505")
        self.fails("return pg:transaction(function(tx) tx:exec([[insert into item(name) values('e')]]) pcall(tx.exec, tx, 'no') return 'fine' end)",
                   "syntax error", "EINVAL", "42601")
        self.raises("return pg:transaction(function(tx) pg:exec('delete from item') end)", "use the argument of its function, such as tx:exec")
        self.raises("return pg:transaction(function(tx) pg:transaction(print) end)", "use the argument of its function")
        self.raises("return pg:transaction(function(tx) tx:exec('commit') end)", "a transaction ends with its function")
        self.raises("return pg:transaction(function(tx) tx:exec('rollback') end)", "a transaction ends with its function")
        self.raises("return pg:transaction(function(tx) tx:exec('set work_mem = 1') end)", "also after the end: use `set local`")
        self.raises("return pg:transaction(function(tx) env_tx = tx end) and env_tx:one('select 1')", "tx:one: the transaction or the loop has ended")
        self.assertEqual(self.names(), ["a"])
        self.assertEqual(self.run_lua("""return pg:transaction(function(tx)
            tx:exec("savepoint s") tx:exec("delete from item") tx:exec("rollback to savepoint s")
            tx:exec("set local work_mem = '1MB'")
            return tx:copy_in("copy item(name) from stdin", { { "copied" } }).changes, tx:query("show work_mem")[1].work_mem
          end)"""), [1, "1MB"])
        self.assertEqual(self.names(), ["a", "copied"])
        self.raises("return pg:exec('insert into item(name) values (1) returning name').id", "write pg:one(\"insert ... returning id\", ...).id")
        self.raises("return pg:exec('delete from item where id < 0').last_id", "a result of pg:exec has no method or field 'last_id'; write pg:one(")
        idle = "select count(*) from pg_stat_activity where state like 'idle in transaction%'"
        self.eventually(lambda: self.pg.psql(idle) == "0", "no transaction is left")

    def test_a_commit_that_fails(self):
        self.run_lua("return pg:exec('create table late (name text references item(name) deferrable initially deferred)')")
        self.fails("return pg:transaction(function(tx) tx:exec([[insert into late values('none')]]) end)", "violates foreign key", "EINVAL", "23503")
        self.run_lua("return pg:exec('drop table late')")

    def test_a_transaction_is_of_one_task(self):
        self.assertEqual(self.run_lua(r"""
            local message
            local one = ls.channel("one")
            pg:transaction(function(tx)
              ls.spawn(function()
                local ok, text = pcall(tx.one, tx, "select 1")
                one:send(text)
              end)
              tx:one("select pg_sleep(0.2)")
            end)
            message = one:receive()
            return message:match("another task waits for a statement of it")
        """), ["another task waits for a statement of it"])
        self.assertEqual(self.run_lua(r"""
            local other, go = ls.channel("other"), ls.channel("go")
            ls.spawn(function()
              other:send(pg:transaction(function(tx)
                tx:exec("insert into item(name) values('x')")
                other:send("inserted")
                go:receive()
                return nil, "undone"
              end) == nil)
            end)
            local result = { other:receive(), pg:one("select count(*) as n from item where name = 'x'").n }
            go:send(true)
            result[3] = other:receive()
            return table.unpack(result)
        """), ["inserted", 0, True])

    def test_a_task_that_waits_for_a_transaction_of_another_one_that_ends(self):
        self.assertEqual(self.run_lua(r"""
            local done, begun = ls.channel("done"), ls.channel("begun")
            local ok, message = pcall(pg.transaction, pg, function(tx)
              ls.spawn(function()
                begun:send(true)
                done:send({ pcall(tx.one, tx, "select pg_sleep(1000) as of_another_task") })
              end)
              begun:receive()
              repeat until pg_active("of_another_task")
              return true
            end)
            local other = done:receive()
            return ok, message:match("another task waits for a statement of it"), other[1], other[2]:match("loop has ended")
        """.replace('pg_active("of_another_task")', 'quick:one("select 1 from pg_stat_activity where query like $1 and state = \'active\'", "%of_another_task%")')),
                         [False, "another task waits for a statement of it", False, "loop has ended"])

    def test_a_transaction_that_ends_when_the_answer_of_another_task_has_come(self):
        self.assertEqual(self.run_lua(r"""
            local done, begun, ended = ls.channel("answered"), ls.channel("begins"), 0
            repeat -- until it has ended five times before the other task has used its answer
              local ok = pcall(pg.transaction, pg, function(tx)
                ls.spawn(function()
                  begun:send(true)
                  done:send({ pcall(tx.one, tx, "select 1 as v") })
                end)
                begun:receive()
                local till = os.clock() + 0.02
                repeat until os.clock() > till -- the answer comes, and waits for its task
                return true
              end)
              local other = done:receive()
              assert(ok == other[1] and (ok or other[2]:match("the transaction or the loop has ended")))
              if not ok then ended = ended + 1 end
            until ended == 5
            return pg:one("select 1 as v").v
        """), [1])

    def test_a_table_that_runs_statements_while_it_is_encoded(self):
        self.raises(r"""
            return pg:transaction(function(tx)
              local list = setmetatable({}, { __index = function(_, i)
                if i == 1 then pcall(tx.copy_in, tx, "copy item(name) from stdin", {}) end
              end })
              return tx:one("select $1::int[] as a, $2::int[] as b", {}, list)
            end)
        """, "another statement was run meanwhile")
        self.raises(r"""
            return pg:transaction(function(tx)
              local list = setmetatable({}, { __index = function(_, i)
                if i == 1 then pcall(tx.exec, tx, "select 1") end
              end })
              return tx:one("select $1::int[] as a, $2::int[] as b, $3::int as c, $4::int[] as d", {}, list, 3, {})
            end)
        """, "another statement was run meanwhile")

    def test_calls_that_raise_keep_no_connection(self):
        self.assertEqual(self.run_lua(r"""
            for n = 1, 20 do
              pcall(pg.rows, pg, "select $1::int", "x", 2)
              pcall(pg.rows, pg, "selec")
              pcall(pg.copy_out, pg, "copy nothing to stdout")
              pcall(pg.copy_in, pg, "copy nothing from stdin", {})
              pcall(pg.exec, pg, "select $1::int", {})
            end
            return pg:one("select 1 as v")
        """), [{"v": 1}])

    def test_a_handler_that_ends_undoes_its_transaction(self):
        with self.server.connect() as conn:
            self.assertEqual(conn.get("/transaction").status, 503)
        self.eventually(lambda: self.pg.psql("select count(*) from pg_stat_activity where state like 'idle in tr%'") == "0",
                        "no transaction is left")
        self.assertEqual(self.names(), [])

    # ---- ends ----------------------------------------------------------------------------------------------------------

    def test_a_statement_ends_with_the_deadline_of_its_request(self):
        with self.server.connect() as conn:
            conn.send(b"GET /deadline HTTP/1.1\r\nHost: h\r\n\r\n")
            self.eventually(lambda: self.running("as deadline"), "the statement runs")
            self.assertEqual(conn.response().status, 503)
        self.eventually(lambda: not self.running("as deadline"), "the statement has ended")

    # ---- the pool -------------------------------------------------------------------------------------------------------

    def test_many_clients_share_the_connections_in_order(self):
        def client(n):
            return self.run_lua("return pg:one('select $1::int as n, pg_sleep(0.01)::text as s', %d).n" % n)[0]

        self.assertEqual(in_parallel([lambda n=n: client(n) for n in range(64)], 64), list(range(64)))
        self.assertLessEqual(self.connections(), 5)
        self.assertEqual(self.stat("waiting"), 0)
        self.assertGreater(self.stat("statements"), 64)
        self.assertGreater(self.stat("busy_seconds"), 0.6)

    def test_statements_are_kept_up_to_a_limit(self):
        self.assertEqual(self.run_lua(r"""
            return pg:transaction(function(tx)
              for round = 1, 2 do
                for n = 1, 70 do assert(tx:one("select $1::int + " .. n .. " as v", 1).v == n + 1) end
              end
              return tx:one("select count(*) as n from pg_prepared_statements").n
            end)"""), [64])

    def test_a_value_that_is_wrong_for_a_kept_statement(self):
        """It is not prepared again, and the next statements of the connection run; in a transaction nothing of it stays."""
        for way in "one:one(sql, 'x')", "one:transaction(function(tx) tx:one(sql, 'x') end)":
            self.assertEqual(self.run_lua(r"""
                local one, sql = ls.postgres("@URL@&application_name=wrong", { connections = 1 }), "select $1::int as v"
                local function kept() return ls.json.encode(one:query("select name from pg_prepared_statements where statement = $1", sql)) end
                one:one(sql, 1)
                local before, ok, e = kept(), pcall(function() return """.replace("@URL@", self.pg.url) + way + r""" end)
                return ok, e.sqlstate, before == kept(), #before > 9, one:one(sql, 2).v,
                  one:one("select count(*) as n from pg_prepared_statements where name = 'luaserve_now'").n"""),
                [False, "22P02", True, True, 2, 0])

    def test_tables_and_types_that_have_changed_since_a_statement_was_prepared(self):
        table = "create table changes (a int); insert into changes values(1)"
        mood = "create type change_mood as enum ('sad', 'ok')"
        for begin, code, before, change, after in (
                (table, "'select * from changes'", {"a": 1}, "alter table changes add b int default 2", {"a": 1, "b": 2}),
                (table, "'select * from changes'", {"a": 1}, "drop table changes; create table changes as select 'x'::text as c", {"c": "x"}),
                (table, "'select a from changes where a = $1', 1", {"a": 1}, "alter table changes alter a type text", {"a": "1"}),
                (table, "'update changes set a = $1 returning a', arg", {"a": 7}, "alter table changes alter a type text", {"a": "abc"}),
                (mood, "'select array[$1]::change_mood[] as m', 'ok'", {"m": ["ok"]}, "drop type change_mood; " + mood, {"m": ["ok"]}),
                ("", "'select 5 as v'", {"v": 5}, None, {"v": 5})):
            for way in ("one:one(@)", "(function() for row in one:rows(@) do return row end end)()",
                        "one:transaction(function(tx) return tx:one(@) end)"):
                with self.subTest(code=code, way=way, change=change):
                    self.pg.psql(begin)
                    call = "local arg = %s local one = ls.postgres('" + self.pg.url + \
                        "&application_name=changes', { connections = 1 }) return " + way.replace("@", code)
                    self.assertEqual(self.run_lua(call % 7), [before])
                    if change:
                        self.pg.psql(change)
                    else:
                        self.run_lua("return ls.postgres('%s&application_name=changes'):exec([[do $$ begin execute 'deallocate all'; end $$]])" % self.pg.url)
                    self.assertEqual(self.run_lua(call % "'abc'"), [after])
                    self.pg.psql("drop table if exists changes; drop type if exists change_mood")

    def test_a_table_that_changes_inside_of_a_transaction_or_by_a_migration(self):
        self.pg.psql("create table later (a int); insert into later values(1)")
        code = "return pg:transaction(function(tx) tx:exec('select 1') return tx:one('select * from later') end)"
        for _ in range(8):
            self.assertEqual(self.run_lua(code), [{"a": 1}])
        self.pg.psql("alter table later add b int default 2")
        results = self.results(code)
        self.assertEqual((results[0], results[3:]), (False, ["EBUSY", "0A000"]), results)
        self.assertIn("run the transaction again", results[1])
        self.assertEqual(self.run_lua(code), [{"a": 1, "b": 2}])
        held = """
            local held, go, done = ls.channel("kept"), ls.channel("use"), {}
            for n = 1, 4 do
              ls.spawn(function()
                done[n] = POOL:transaction(function(tx)
                  held:send(tx:one("select 1 as n").n)
                  go:receive()
                  return tx:one("select * from later")
                end)
                held:send(n)
              end)
            end
            for n = 1, 4 do held:receive() end
            for n = 1, 4 do go:send(true) end
            for n = 1, 4 do held:receive() end
            return done"""
        for pool in ("pg", "quick"):  # on all four connections
            self.assertEqual(self.run_lua(held.replace("POOL", pool)), [[{"a": 1, "b": 2}] * 4])
        self.run_lua("return quick:migrate { FIRST, 'alter table later add c int default 3' }")
        self.assertEqual(self.run_lua(held.replace("POOL", "quick")), [[{"a": 1, "b": 2, "c": 3}] * 4])
        self.pg.psql("drop table later; update luaserve_version set version = 1; delete from luaserve_migration where number > 1")

    def test_arrays_of_all_types(self):
        self.pg.psql("create type array_mood as enum ('sad', 'a \"b\"'); create domain array_count as int check (value > 0)")
        for kind, values in (
                ("array_mood", ["sad", 'a "b"']), ("inet", ["10.0.0.1", "::1"]), ("int4range", ["[1,5)", "empty"]),
                ("money", ["$1.50"]), ("point", ["(1,2)", "(3.5,4)"]), ("box", ["(1,1),(0,0)", "(2,2),(1,1)"]),
                ("array_count", [1, 2]), ("interval", ["1 day"]), ("bit varying", ["101"]), ("int[]", [[1, 2], [3, 4]]),
                ("numeric", [1.5, 19.99]), ("name", ["a"]), ("tsvector", ["'a' 'b'"])):
            with self.subTest(kind):
                element = kind.removesuffix("[]")
                self.assertEqual(self.run_lua("return pg:one('select $1::%s[] as list', ls.json.decode [==[%s]==]).list"
                                              % (element, json.dumps(values))), [values])
        self.assertEqual(self.run_lua("""
            local found = {}
            for n = 1, 3 do found[n] = pg:transaction(function(tx) return tx:one("select array['sad']::array_mood[] as m, '{}'::inet[] as i") end) end
            return found"""), [[{"m": ["sad"], "i": []}] * 3])
        self.pg.psql("drop type array_mood; drop domain array_count")

    def test_numbers_have_the_digits_that_read_back(self):
        self.assertEqual(self.run_lua("""
            local price = ls.json.decode "19.99"
            pg:transaction(function(tx)
              tx:exec("create temporary table prices (n numeric) on commit drop")
              tx:copy_in("copy prices from stdin", { { price }, { 3.0 } })
              copied = tx:query("select n::text from prices")
            end)
            return copied, pg:one("select $1::numeric::text as n, $1::text as t, $2::numeric[]::text[] as l, $3::int as w, $4::float8 = 'inf' as i",
              price, { price, 0.1 }, 3.0, math.huge)"""),
            [[{"n": "19.99"}, {"n": "3"}], {"n": "19.99", "t": "19.99", "l": ["19.99", "0.1"], "w": 3, "i": True}])

    def test_the_session_decides_how_dates_are_written(self):
        self.pg.psql("alter role ada set datestyle = 'German'; alter role ada set extra_float_digits = -5")
        self.assertEqual(self.run_lua("""
            local row = ls.postgres('%s&application_name=dates'):one("select '2024-11-28 20:00:00.25+02'::timestamptz as at, 0.1::float8 + 0.2 as sum")
            local zoned = pg:transaction(function(tx)
              tx:exec("set local timezone = 'Asia/Kolkata'")
              return tx:one("select '2024-11-28 20:00:00.25+02'::timestamptz as at").at
            end)
            return ls.date.parse(row.at), row.sum, zoned, ls.date.parse(zoned), ls.date.parse("2024-11-28 20:00:00+02")
        """ % (self.pg.tcp % ("ada:secret", "site") + "?sslmode=disable")),
            [1732816800.25, 0.1 + 0.2, "2024-11-28 23:30:00.25+05:30", 1732816800.25, 1732816800])
        self.pg.psql("alter role ada reset all")

    def test_an_idle_connection_that_the_server_closes(self):
        one = "return ls.postgres('%s&application_name=idle', { connections = 1 }):one('select pg_backend_pid() as pid').pid" % self.pg.url
        pid, lost = self.run_lua(one)[0], self.stat("lost")
        self.assertEqual(self.run_lua(one), [pid])
        self.pg.psql("select pg_terminate_backend(%d)" % pid)
        self.eventually(lambda: self.stat("lost") > lost, "the pool has noticed it")
        self.assertNotIn(self.run_lua(one)[0], (pid, None))

    def test_a_connection_that_is_lost_fails_its_statement(self):
        self.fails("return pg:one('select pg_terminate_backend(pg_backend_pid())')", "/site: ", "ECLOSED", "57P01")
        self.assertEqual(self.run_lua("return pg:one('select 1 as v')"), [{"v": 1}])

    # ---- rows and COPY -----------------------------------------------------------------------------------------------

    def test_rows(self):
        self.assertEqual(self.run_lua("local sum = 0 for row in pg:rows('select generate_series(1, $1::int) as n', 20000) do sum = sum + row.n end return sum"),
                         [200010000])
        self.assertEqual(self.run_lua("for row in pg:rows('select 1 as n where false') do return row end return 'none'"), ["none"])
        self.assertEqual(self.run_lua("for row in pg:rows('select generate_series(1, 100000000) as n') do if row.n == 5 then return row end end"), [{"n": 5}])
        self.raises("for row in pg:rows('select 1 / (5000 - n) from generate_series(1, 10000) as n') do last = row end", "division by zero")
        self.raises("for row in pg:rows('selec') do end", "syntax error")
        self.assertEqual(self.run_lua("local n = 0 for row in pg:rows('insert into item(name) values($1), ($2) returning name', 'a', 'b') do n = n + 1 end return n"), [2])
        self.assertLessEqual(self.connections(), 5)

    def test_a_result_that_is_too_large(self):
        code = "return #pg:query([[select repeat('x', 1048576) as x from generate_series(1, %d)]])"
        self.assertEqual(self.run_lua(code % 63), [63])
        self.fails(code % 65, "the result has more than 64 MiB: read it with pg:rows", "EMSGSIZE")

    def test_copy_takes_many_rows_in_constant_memory(self):
        rows = 2000 if SANITIZER else 100000
        self.run_lua("return pg:exec 'create unlogged table bulk (line text, n int)'")
        code = r"""
            local n, line = 0, ("x"):rep(500)
            local result = assert(pg:copy_in("copy bulk(line, n) from stdin", function()
              n = n + 1
              if n <= %d then return n %% 2 == 0 and { line .. n, n } or line .. n .. "\t" .. n .. "\n" end
            end))
            return result.changes""" % rows
        back = r"""
            local lines, bytes = 0, 0
            for chunk in pg:copy_out("copy bulk to stdout") do
              lines, bytes = lines + select(2, chunk:gsub("\n", "")), bytes + #chunk
            end
            return lines, bytes > 500 * lines"""
        # 50 MB pass through 16 MiB of Lua memory, and do not stay in the process.
        site = self.serve(self.SITE.replace("{ threads = 4 }", "{ states = 1, max_memory = 16777216 }"))
        before = site.rss()
        self.assertEqual(self.run_lua(code, site), [rows])
        self.assertEqual(self.run_lua(back, site), [rows, True])
        if not SANITIZER:  # it keeps freed memory
            self.assertLess(site.rss() - before, 32 << 20)
        site.stop()
        self.raises("local n = 0 return pg:copy_in('copy item(name) from stdin', function() n = n + 1 if n == 5 then error('mine') end return 'row' .. n .. '\\n' end)", "mine")
        self.assertEqual(self.run_lua("return pg:one([[select count(*) as n from item where name like 'row%']]).n"), [0])

    def test_a_row_that_is_larger_than_the_memory_of_the_state(self):
        rows = 1 if SANITIZER else 6  # 192 MiB
        site = self.serve(app_site("""
            ls.config { states = 1, max_memory = 16777216 }
            local pg = ls.postgres("@URL@&application_name=large", { connections = 1 })
            app:get("/:n", function(req)
              local failed = 0
              for n = 1, req.params.n do
                local ok, err = pcall(function()
                  for _ in pg:copy_out("copy (select repeat('x', 33554432)) to stdout") do error("it fits") end
                end)
                if not ok and err:find("not enough memory") then failed = failed + 1 end
              end
              return tostring(failed)
            end)
""").replace("@URL@", self.pg.url))
        self.assertEqual(site.get("/1").text, "1")
        before = site.rss()
        self.assertEqual(site.get("/%d" % rows).text, str(rows))
        if not SANITIZER:
            self.assertLess(site.rss() - before, 128 << 20)

    def test_copy_out_that_ends_early_and_fails(self):
        self.assertEqual(self.run_lua("for chunk in pg:copy_out('copy (select generate_series(1, 10000000)) to stdout') do return chunk:sub(1, 4) end"), ["1\n2\n"])
        self.raises("for chunk in pg:copy_out('copy (select 1 / (50000 - n) from generate_series(1, 60000) as n) to stdout') do end", "division by zero")
        self.assertEqual(self.run_lua("local n = 0 for chunk in pg:copy_out('copy (select 1 where false) to stdout') do n = n + 1 end return n"), [0])

    def test_a_row_of_copy_that_is_too_long(self):
        site = self.serve(self.SITE.replace("{ threads = 4 }", "{ states = 1 }") + r"""
local function upvalue(f, name) -- its number and value
  for n = 1, 255 do
    local found, value = debug.getupvalue(f, n)
    if found == name then return n, value end
  end
end
local _, copy_in = upvalue(pg.copy_in, "copy_in")
local limit, bytes = upvalue(copy_in, "ROW_BYTES_MAX")
assert(bytes == 1 << 30)
debug.setupvalue(copy_in, limit, 8) -- a gigabyte takes its time
""")
        copy = "return pg:copy_in('copy item(name) from stdin', { 'a\\n', '%s' }).changes"
        self.raises(copy % ("x" * 9), "pg:copy_in: row 2 has more than 1 GiB", site)
        self.assertEqual(self.run_lua("return pg:one('select count(*) as n from item').n"), [0])
        self.assertEqual(self.run_lua(copy % ("x" * 8), site), [2])
        site.stop()

    # ---- migrations ------------------------------------------------------------------------------------------------------

    def test_migrations(self):
        self.assertEqual(self.pg.psql("select version from luaserve_version"), "1")
        self.raises("return pg:migrate {}", "this database gets a longer list at ")
        self.raises("return pg:migrate { 'other' }", "this database gets another list at ")
        self.raises("return quick:migrate {}", "the database has version 1, and the list has 0")
        self.assertEqual(self.run_lua("return quick:migrate { FIRST, ' create table m2 (a int); insert into m2 values(1), (2)' }"), [True])
        self.raises("return quick:migrate { FIRST .. 'x', '' }", "pg:migrate: migration 1 was edited after it has run")
        self.raises("return quick:migrate { FIRST, ' create  table m2 (a int); insert into m2 values(1), (2)', 'insert into m2 values(3); selec' }",
                    "/site: syntax error")
        self.assertEqual(self.pg.psql("select count(*) from m2; select version from luaserve_version"), "2\n2")
        self.pg.psql("update luaserve_version set version = 1; delete from luaserve_migration where number > 1; drop table m2")

    def test_dev_mode_has_no_warning_of_migrations(self):
        self.pg.psql("create schema dev")
        site = self.serve(app_site("""
local pg = ls.postgres("%s&options=-csearch_path%%3Ddev")
pg:migrate { "create table note (id int)", "insert into note values(1)" }
pg:transaction(function(tx) tx:exec("insert into note values(2)") end)
app:get("/", function() return pg:query("select * from note") end)""" % self.pg.url), program=(LUASERVE, "dev"))
        with site.connect() as conn:
            self.assertIn(b'"id":1', conn.ask("GET", "/").body)
        site.wait_log("tx:exec at the top of a file runs again .*: use pg:migrate")
        self.assertEqual(len(site.warnings()), 1, site.log())

    def test_settings_of_a_migration_end_with_it(self):
        self.assertEqual(self.run_lua("""
            local one = ls.postgres("%s&application_name=one", { connections = 1 })
            local list = { FIRST, "set search_path = public; select set_config('work_mem', '1234kB', false)" }
            local function connection() return one:one("select pg_backend_pid() as pid").pid end
            local before = connection()
            assert(one:migrate(list))
            local after = connection()
            assert(one:migrate(list)) -- it has nothing to do
            return before ~= after, after == connection(), one:one("show search_path").search_path, one:one("show work_mem").work_mem
        """ % self.pg.url), [True, True, '"$user", public', "4MB"])
        self.pg.psql("update luaserve_version set version = 1; delete from luaserve_migration where number > 1")

    def test_settings_of_the_session_are_refused(self):
        self.raises("return pg:one([[select set_config('work_mem', '1MB', false)]])", "it would change one connection of many")
        self.assertEqual(self.run_lua("""
            return pg:transaction(function(tx)
              tx:exec("select set_config('work_mem', '1234kB', true)")
              return tx:one("show work_mem").work_mem
            end)"""), ["1234kB"])

    def test_options_of_a_pool_are_those_of_its_first_call(self):
        self.raises("return ls.postgres('%s', { connections = 5 })" % self.pg.url, "this database has other options at ")
        self.assertEqual(self.run_lua("return ls.postgres('%s'):one('select 1 as v')" % self.pg.url), [{"v": 1}])


class Servers(Case):
    def setUp(self):
        super().setUp()
        if self.pg.process.poll() is not None:
            self.pg.start()

    def ok(self):
        return self.results("return pg:one('select 1 as v')")[1] == self.results("return quick:one('select 1 as v')")[1] == {"v": 1}

    def test_a_server_that_is_killed_and_started_again(self):
        waiting = []
        thread = threading.Thread(target=lambda: waiting.append(self.results("return pg:exec('select pg_sleep(1000) as killed')")))
        thread.start()
        self.eventually(lambda: self.running("as killed"), "the statement runs")
        self.pg.stop()
        thread.join(2 * WAIT)
        self.assertEqual(waiting[0][3], "ECLOSED", waiting)
        self.assertIn("%s:%d/site: " % (self.pg.folder, self.pg.port), waiting[0][1])
        self.eventually(lambda: "No such file or directory" in str(self.results("return pg:one('select 1')")), "connections are refused")
        results = in_parallel([lambda: self.results("return pg:one('select 1')")[3] for _ in range(20)])
        self.assertEqual(set(results), {"EREFUSED"})
        self.server.wait_log("warn ls.postgres: .*/site: ")
        self.pg.start()
        self.eventually(self.ok, "it uses the server again")
        self.assertGreater(self.stat("lost"), 0)

        def heard():  # what was sent before LISTEN is lost
            self.pg.psql("notify news, 'again'")
            return "news again" in json.loads(self.get("/got").text)

        self.eventually(heard, "notifications arrive again")

    def test_a_server_that_is_stopped(self):
        self.eventually(self.ok, "the server answers")
        pids = self.pg.pids()
        self.pg.signal_all(signal.SIGSTOP)
        try:
            results = in_parallel([lambda: self.results("return quick:one('select 1')") for _ in range(6)])
            for result in results:
                self.assertIn(result[3], ("ETIMEDOUT", "EREFUSED"), result)
            self.assertIn("ETIMEDOUT", [result[3] for result in results])
            self.assertIn("no answer within %d seconds" % QUICK, str(results))
            self.assertEqual(self.get("/hello").text, "hello")
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.eventually(self.ok, "it uses the server again")

    def test_a_connection_is_waited_for_up_to_the_time_limit(self):
        self.eventually(self.ok, "the server answers")
        self.assertEqual(self.run_lua(r"""
            local held, go = ls.channel("held"), ls.channel("free")
            for n = 1, 4 do
              ls.spawn(function() quick:transaction(function() held:send(n) go:receive() end) held:send(0) end)
            end
            for n = 1, 4 do held:receive() end
            local _, e = ls.try(quick.one, quick, "select 1")
            assert(e.retry)
            local waiting = ls.stats().postgres_waiting
            for n = 1, 4 do go:send(true) end
            for n = 1, 4 do held:receive() end
            return e.code, e.message:match("no connection was free within %d+ seconds"), waiting, quick:one("select 2 as v").v
        """), ["ETIMEDOUT", "no connection was free within %d seconds" % QUICK, 0, 2])

    def test_notifications(self):
        self.eventually(lambda: "1" == self.pg.psql("select count(*) from pg_stat_activity where query like 'listen%'"),
                        "it listens")
        self.pg.psql("notify news, 'first'; notify news, 'second'; notify other, 'no'")
        self.eventually(lambda: {"news first", "news second"} <= set(json.loads(self.get("/got").text)), "notifications arrive")
        self.assertGreaterEqual(self.stat("notifications"), 2)
        name = 'odd "name" é'
        self.assertEqual(self.run_lua(r"""
            local channel, heard = 'odd "name" é', ls.channel("heard")
            local topic = pg:listen(channel)
            local subscription = ls.subscribe(topic, function(payload) heard:send(payload) end)
            local direct = pg:listen(channel, function(payload, from) heard:send(payload .. from) end)
            local first
            repeat
              pg:exec("select pg_notify($1, 'x')", channel)
              first = heard:receive(0.05)
            until first
            local second = heard:receive()
            subscription:remove()
            direct:remove()
            return topic:match(":(odd.*)$"), #first + #second
        """), [name, 2 + len(name.encode())])

    def test_channels_are_limited(self):
        site = self.serve(self.SITE)
        self.assertEqual(self.run_lua("""
            local many, heard = ls.postgres("%s&application_name=many"), ls.channel("many", { capacity = 1 })
            for n = 1, 1000 do assert(many:listen("c" .. n)) end
            local none, e = ls.try(many.listen, many, "c1001")
            local last = many:listen("c1000", function(payload) heard:send(payload) end)
            local payload
            repeat
              many:exec("select pg_notify('c1000', 'here')")
              payload = heard:receive(0.05)
            until payload
            last:remove()
            return none, e.message:match("more than 1000 channels"), e.code, payload
        """ % self.pg.url, site), [None, "more than 1000 channels", "ELIMIT", "here"])

    def test_a_site_that_listens_and_waits_before_it_serves(self):
        site = self.serve(app_site("""
            local pg = ls.postgres("@URL@&application_name=early")
            local heard = ls.dict("heard")
            pg:listen("early", function(payload) heard:incr(payload) end)
            ls.init(function() heard:set("slept", pg:one("select 1 as v from pg_sleep(0.5)").v) end)
            app:get("/heard", function()
              pg:exec("notify early, 'one'")
              return { heard:get("slept"), heard:get("one") or 0 }
            end)
""").replace("@URL@", self.pg.url))
        self.eventually(lambda: json.loads(site.get("/heard").text)[1] > 0, "it hears")
        self.assertEqual(json.loads(site.get("/heard").text)[0], 1)

    def test_refusals_are_told_without_the_password(self):
        for url, message, code, state in (
                (self.pg.tcp % ("ada:hunter2", "site"), 'password authentication failed for user "ada"', "EACCES", "28P01"),
                (self.pg.tcp % ("postgres", "nothing"), 'database "nothing" does not exist', "ENOENT", "3D000"),
                (self.pg.tcp % ("postgres", "site") + "?sslmode=require", "server does not support SSL, but SSL was required", "EREFUSED", None),
                ("postgres://u:hunter2@h:x/d", 'invalid integer value "x" for connection option "port"', "EREFUSED", None),
                ("postgres://none.invalid/site", 'could not translate host name "none.invalid"', "EREFUSED", None)):
            with self.subTest(url):
                results = self.results("return ls.postgres('%s'):one('select 1')" % url)
                self.assertEqual((results[0], *results[3:]), (False, code, state), results)
                self.assertIn(message, results[1])
                self.assertNotIn("hunter2", str(results))
        self.assertEqual(self.run_lua("return ls.postgres('%s'):one('select current_user as u')" % (self.pg.tcp % ("ada:secret", "site"))),
                         [{"u": "ada"}])
        self.assertNotIn("hunter2", self.server.log())
        self.assertNotIn("secret", self.server.log())

    @unittest.skipIf(SANITIZER, "a library before that of the sanitizer")
    def test_a_slow_lookup_of_a_further_host_delays_nobody(self):
        folder = temporary_folder()
        write_text(folder + "/slow.c", SLOW_NAMES.replace("FOLDER", folder))
        subprocess.run(["cc", "-fPIC", "-shared", "-o", folder + "/slow.so", folder + "/slow.c", "-ldl"], check=True)
        site = self.serve(app_site("""
            ls.config { threads = 1, threads_max = 1 }
            local pg = ls.postgres("postgres://postgres@127.0.0.1:%d,slow.example:%d/site", { connect_timeout = 300 })
            app:get("/hello", function() return "hello" end)
            app:get("/one", function() return { pg:one("select 1 as v") } end)
""") % (free_port(), self.pg.port), env={"LD_PRELOAD": folder + "/slow.so"})
        answers = []
        thread = threading.Thread(target=lambda: answers.append(site.get("/one").text))
        thread.start()
        self.eventually(lambda: os.path.exists(folder + "/begun"), "the second name is looked up")
        self.assertEqual(site.get("/hello").text, "hello")
        write_text(folder + "/gate", "")
        thread.join(WAIT)
        self.assertEqual(answers, ['[{"v":1}]'])

    def test_reloads_keep_the_pool(self):
        pid = self.run_lua("return pg:one('select pg_backend_pid() as pid').pid")[0]
        for _ in range(3):
            self.server.reload("reloaded|new site")
        self.eventually(self.ok, "it answers")
        self.assertLessEqual(self.connections(), 5)
        self.assertEqual(self.pg.psql("select count(*) from pg_stat_activity where pid = %d" % pid), "1")

    def test_tls(self):
        key = self.pg.data + "/server"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=localhost", "-keyout", key + ".key", "-out", key + ".crt"], check=True, capture_output=True)
        os.chmod(key + ".key", 0o600)
        if os.getuid() == 0:
            os.chown(key + ".key", 65534, 65534)
        self.pg.psql("alter system set ssl = on")
        self.pg.psql("select pg_reload_conf()")
        url = self.pg.tcp % ("postgres", "site") + "?sslmode=require&application_name=tls"
        self.eventually(lambda: self.run_lua("return ls.postgres('%s'):one('select ssl from pg_stat_ssl where pid = pg_backend_pid()')" % url)[0]
                        == {"ssl": True}, "TLS is used")
        self.assertEqual(self.run_lua("local n = 0 for row in ls.postgres('%s'):rows('select generate_series(1, 100000) as n') do n = n + 1 end return n" % url), [100000])
        self.pg.psql("alter system reset ssl")
        self.pg.psql("select pg_reload_conf()")


SLOW_NAMES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    if (name == NULL || strcmp(name, "slow.example") != 0) return next(name, port, hints, out);
    close(open("FOLDER/begun", O_CREAT | O_WRONLY, 0600));
    while (access("FOLDER/gate", F_OK) != 0) usleep(1000);
    return next("127.0.0.1", port, hints, out);
}
"""


class FakeServer:
    """Accepts connections and answers each with `data`, bytes or a list of pieces, then closes it; a piece that
    is None waits for a message of the client, data None does so without end."""

    def __init__(self, data):
        self.data, self.held = data, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                conn = self.listener.accept()[0]
                if self.data is None:
                    self.held.append(conn)
                    continue
                with conn, contextlib.suppress(OSError):
                    conn.recv(4096)
                    for piece in [self.data] if isinstance(self.data, bytes) else self.data:
                        if piece is None:
                            conn.recv(65536)
                        else:
                            conn.sendall(piece)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for conn in self.held:
            conn.close()


def message(kind, body):
    return kind + (len(body) + 4).to_bytes(4, "big") + body


NOTICE = message(b"N", b"SNOTICE\0VNOTICE\0C00000\0Mwait\0\0")
SET = message(b"C", b"SET\0") + message(b"Z", b"I")
READY = message(b"R", bytes(4)) + message(b"S", b"server_version\x0015.1\0") + message(b"Z", b"I")
STARTED = [READY, None, SET, None]
SITE = app_site("""
ls.config { threads = 2 }
app:get("/listen/:port", function(req)
  ls.postgres("postgres://127.0.0.1:" .. req.params.port .. "/news?sslmode=disable"):listen("news")
  return { ls.stats().postgres_notifications }
end)
app:get("/:port/:timeout/:connect", { timeout = 600 }, function(req)
  local pg = ls.postgres("postgres://127.0.0.1:" .. req.params.port .. "/d?sslmode=disable",
    { timeout = tonumber(req.params.timeout), connect_timeout = tonumber(req.params.connect) })
  local row, e = ls.try(pg.one, pg, "select 1")
  return { row or ls.json.null, e and e .. "", e and e.code }
end)
""")


class Fakes(E2E):
    SITE = SITE

    @classmethod
    def setUpClass(cls):
        if not BUILT:
            raise unittest.SkipTest(LACKS)
        super().setUpClass()

    def test_servers_that_are_none(self):
        for name, data, codes in (
                ("garbage", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100, ("EREFUSED",)), ("nothing", b"", ("EREFUSED",)),
                ("zeros", bytes(5000), ("EREFUSED",)), ("a long message", b"R\x7f\xff\xff\xff" + b"x" * 100, ("EREFUSED",)),
                ("an error", message(b"E", b"SFATAL\0VFATAL\0C28000\0Mno\0\0"), ("EACCES",)),
                ("silence", None, ("EREFUSED",)), ("the end behind its greeting", READY, ("EREFUSED", "ECLOSED")),
                ("garbage behind its greeting", READY + b"\xff" * 3000, ("EREFUSED", "ECLOSED")),
                *(("COPY %s, unasked" % kind, [READY, None, message(kind, bytes(3)), None], ("EREFUSED",)) for kind in (b"G", b"H", b"W"))):
            with self.subTest(name):
                fake = FakeServer(data)
                try:
                    answers = [self.get("/%d/20/0.3" % fake.port).text for _ in range(2)]
                finally:
                    fake.close()
                for answer in answers:
                    self.assertIn("127.0.0.1:%d/d: " % fake.port, answer + self.server.log())
                    self.assertIn(json.loads(answer)[2], codes, answer)

    def peak(self):
        """The largest resident size so far, in KiB."""
        with open("/proc/%d/status" % self.server.pid, encoding="ascii") as status:
            return int(status.read().split("VmHWM:")[1].split()[0])

    def ask(self, data, timeout, connect_timeout):
        fake = FakeServer(data)
        try:
            return json.loads(self.get("/%d/%s/%s" % (fake.port, timeout, connect_timeout)).text)[1:]
        finally:
            fake.close()

    def test_notices_do_not_prolong_a_call(self):
        def notices():
            yield from STARTED
            while True:
                yield NOTICE
                time.sleep(0.05)

        answer, code = self.ask(notices(), 1, WAIT)
        self.assertEqual(code, "ETIMEDOUT", answer)

    def test_results_and_notifications_without_end_take_no_memory(self):
        note = message(b"A", bytes(4) + b"x\0" + b"y" * 4096 + b"\0")
        for place in ([READY, None], STARTED):
            before = self.peak()
            answer, code = self.ask([*place, *[note * 256] * 64, message(b"E", b"SFATAL\0VFATAL\0C28000\0Mno\0\0")], WAIT, WAIT)
            self.assertIn(code, ("EREFUSED", "EACCES", "ECLOSED"), answer)
            if not SANITIZER:
                self.assertLess(self.peak() - before, 24 << 10)

        def results():
            yield from STARTED
            while True:
                yield message(b"C", b"SET\0") * 1000

        answer, code = self.ask(results(), 1, WAIT)
        self.assertIn(code, ("ETIMEDOUT", "ECLOSED"), answer)

    def test_a_notification_with_a_name_that_is_too_long(self):
        for length in (63, 64, 300, 5000):
            with self.subTest(length):
                before = json.loads(self.get("/listen/1").text)[0]
                fake = FakeServer(READY + SET
                                  + message(b"A", bytes(4) + b"x" * length + b"\0hello\0"))
                try:
                    self.eventually(lambda: json.loads(self.get("/listen/%d" % fake.port).text)[0] > before, "it comes")
                finally:
                    fake.close()
