"""ls.sqlite: statements, values, transactions, rows, migrations, backups, limits, errors, crashes."""
import contextlib
import os
import shutil
import sqlite3
import threading
from random import Random

from harness import (OTHER_SYSTEM, WAIT, WINDOWS, app_site, beside, has_sqlite, in_parallel, read_bytes, repeats,
                     temporary_folder, write_bytes, write_text)
from harness.chunks import ROUTE, SiteChunks

PRELUDE = app_site(r"""
ls.config { threads = 4 }
local db = ls.sqlite("site.db", { readers = 2 })
db:migrate { "create table item (id integer primary key, name text unique, n, data blob)" }
local gate = ls.channel("gate")
local slow = "with recursive c(n) as (select 1 union all select n + 1 from c where n < ?) select count(*) as n from c"
local env = { db = db, ls = ls, gate = gate, slow = slow, memory = ls.sqlite(":memory:") }
app:get("/hello", function() return "hello" end)
app:get("/slow", { timeout = 1 }, function() return db:one(slow, 10 ^ 12) end)
app:get("/rows", { timeout = 1 }, function()
  for row in db:rows(slow:gsub("select count%(%*%) as n", "select n from c where n %% 1000000 = 0 -- "), 10 ^ 12) do env.last = row.n end
end)
app:get("/forever", { timeout = 5 }, function() return db:one(slow, 10 ^ 12) end)
app:get("/forever/memory", { timeout = 1 }, function() return env.memory:one(slow, 10 ^ 12) end)
""").replace("app:get", ROUTE + "app:get", 1)
HAS_SQLITE = has_sqlite()


class Sqlite(SiteChunks):
    SITE = PRELUDE

    @classmethod
    def setUpClass(cls):
        if HAS_SQLITE:
            super().setUpClass()

    def setUp(self):
        if not HAS_SQLITE:
            self.skipTest(OTHER_SYSTEM + "this luaserve has no SQLite")
        super().setUp()
        self.run_lua("return db:exec 'delete from item'")

    def stat(self, name):
        return self.run_lua("return ls.stats().sqlite_%s" % name)[0]

    # ---- statements ------------------------------------------------------------------------------------------------

    def test_exec_returns_changes_and_the_last_id(self):
        self.assertEqual(self.run_lua("return db:exec('insert into item(id, name) values(7, ?)', 'a')"),
                         [{"changes": 1, "last_id": 7}])
        self.assertEqual(self.run_lua("return db:exec('update item set n = 1').changes"), [1])
        self.assertEqual(self.run_lua("return db:exec('update item set n = 1 where id = 8').changes"), [0])
        self.assertEqual(self.run_lua("return db:exec('select 1')"), [{"changes": 0}])
        for code, says in (("exec('select 1')[1]", "'1'; write db:query(sql), or db:one(sql)"), ("exec('update item set n = 1').id", "'id'; write .last_id"),
                           ("exec('update item set n = 1').rowCount", "a result of exec has no method or field 'rowCount'; write .changes")):
            self.raises("return db:" + code, says)
            self.raises("return db:transaction(function(tx) return tx:%s end)" % code, says)
        self.assertEqual(self.run_lua("gate:send(db:exec('select 1'), 0) return gate:receive(1)"), [{"changes": 0}])
        # No row was inserted: not the id of another one.
        self.assertEqual(self.run_lua("return db:exec('insert or ignore into item(id) values(7)')"), [{"changes": 0}])
        self.assertEqual(self.run_lua("return db:exec('insert into item(id) values(7) on conflict do update set n = 3')"),
                         [{"changes": 1}])
        self.assertEqual(self.run_lua("return db:exec('replace into item(id) values(7)')"), [{"changes": 1, "last_id": 7}])

    def test_statements_that_are_never_meant(self):
        null, sort = "null\" is never true: write \"is null\"", "is a constant, not the column with this name"
        for sql, says in (("select * from item where n = null", null), ("delete from item where n!=NULL", null), ("select 1 where 1 <> null or 2", null),
                          ("update item set n = null where name = null", null), ("select * from item order by ?", sort),
                          ("select * from item order  by :a desc limit 1", sort), ("select n from item group by ?", sort)):
            self.raises("return db:query([[%s]], 1)" % sql, says)
            self.raises("return db:transaction(function(tx) tx:one([[%s]], 1) end)" % sql, says)
        for sql in ("update item set n = null where n is null", "update item set id = (select 1 where 1 = 1), n = null where n is null", "select ' = null' as a", "select n from item order by ? + n", "select n as nullable from item where n = n",
                    "insert into item(id) values(1) on conflict do update set n = null", "select n from item order by (select 1)", 'select 1 as "= null"',
                    "select 1 -- don't say n = null"):
            self.run_lua("return db:query([[%s]]%s)" % (sql, ", 1" if "?" in sql else ""))

    def test_rows_by_their_columns(self):
        self.assertEqual(self.run_lua("""
          local row = db:insert("item", { id = 7, name = "a", n = ls.json.null, data = ls.buffer "x" })
          local changes = db:transaction(function(tx)
            local second = tx:insert("item", { name = "b", n = 2 }, { returning = { "id", "n" } })
            assert(second.id == 8 and second.n == 2 and second.name == nil)
            return tx:update("item", { n = 3 }, { name = { "a", "b" } })
          end)
          return row.id, row.data:tostring(), row.n == nil, changes, db:update("item", { n = 4 }, { data = ls.json.null }, { returning = "*" }),
            db:delete("item", { n = { 4, 3 } }), db:delete("item", { id = {} })
        """), [7, "x", True, 2, [{"id": 8, "name": "b", "n": 4}], 2, 0])
        for code, message, error in (  # a name that is unknown is no text either
                ('insert("item", { nam = 1 })', "table item has no column named nam", "EINVAL"),
                ('update("item", { n = 1 }, { nam = "nam" })', "no such column: nam", "EINVAL"),
                ('update("item", { nam = 1 }, { n = 1 })', "no such column: nam", "EINVAL"),
                ('delete("item", { id = 1 }, { returning = "nam" })', "no such column: nam", "EINVAL"),
                ('delete("itme", { id = 1 })', "no such table: itme", "EINVAL")):
            with self.subTest(code):
                self.fails("return db:" + code, "db:%s: site.db: %s" % (code[:6], message), error)
        self.run_lua("""return db:insert("item", { name = "a" })""")
        self.fails("""return db:insert("item", { name = "a" })""", "UNIQUE constraint failed: item.name", "EEXIST")
        self.fails("return db:query('select 1 limit ?', nil)", "datatype mismatch: limit and offset are whole numbers", "EINVAL")
        self.raises("""db:delete("item", {})""", "chunk:1: db:delete: the condition is missing or empty")
        self.raises("""return db:transaction(function(tx) db:insert("item", { n = 1 }) end)""", "db:insert: this task is inside of db:transaction")

    def test_functions_that_tell_of_the_connection(self):
        """Each statement may run on another connection, whose last row is not that of the insert before."""
        for call in ("last_insert_rowid()", "CHANGES()"):
            self.fails("return db:one('select %s as n')" % call, "use last_id and changes of the result of db:exec", "EINVAL")
        self.assertEqual(self.run_lua("""
          db:exec "create trigger copied after insert on item begin update item set n = last_insert_rowid() where id = new.id; end"
          return db:transaction(function(tx)
            tx:exec("insert into item(id) values(41)")
            return tx:one("select last_insert_rowid() as id, changes() as n")
          end), db:exec("drop trigger copied").changes"""), [{"id": 41, "n": 1}, 0])

    def test_values_come_back_as_they_were(self):
        self.assertEqual(self.run_lua(r"""
          local function same(value) return db:one("select ? as v", value).v end
          for _, value in ipairs { math.maxinteger, math.mininteger, 0, 1.5, -1e300, "", "a\0b", "\xff", "äöü", 1.0 } do
            local got = same(value)
            assert(got == value and math.type(got) == math.type(value), value)
          end
          assert(same(true) == 1 and same(false) == 0)
          assert(same(nil) == nil and same(ls.json.null) == nil)
          local blob = same(ls.buffer("a\0b", "c"))
          assert(type(blob) == "userdata" and blob:tostring() == "a\0bc")
          assert(same(ls.buffer()):tostring() == "")
          return db:one("select typeof(?) as a, typeof(?) as b, typeof(?) as c, typeof(?) as d", 1, 1.0, "x", ls.buffer("x"))
        """), [{"a": "integer", "b": "real", "c": "text", "d": "blob"}])

    def test_columns_that_are_declared_boolean_are_booleans(self):
        many = ", ".join("c%d int" % n for n in range(70))
        self.assertEqual(self.run_lua("""
          memory:exec "create table flags(a boolean not null, b BOOL, n int, %s, c65b boolean)"
          memory:exec("insert into flags(a, b, n, c65b) values(?, ?, 1, ?), (0, 2, 0, null)", true, false, true)
          local rows = memory:query "select a, b, n, max(a) over () as e from flags"
          local written = memory:one "update flags set a = 0 where n = 1 returning a, n"
          local wide = memory:one "select * from flags"
          for row in memory:rows "select a from flags" do rows[#rows + 1] = row end
          memory:exec "alter table flags add column d boolean default 1"
          local found = memory:one "select * from flags where not a and d"
          memory:exec "drop table flags"
          return rows, written, wide.c65b, wide.a, found.d, db:one("select ? as v", true).v
        """ % many), [[{"a": True, "b": False, "n": 1, "e": 1}, {"a": False, "b": 2, "n": 0, "e": 1}, {"a": False}, {"a": False}],
                      {"a": False, "n": 1}, True, False, True, 1])

    def test_texts_in_a_column_that_is_declared_boolean(self):
        mark = self.server.mark()
        self.assertEqual(self.run_lua("""
          memory:exec "create table said(a boolean)"
          local read = {}
          for text in ("false F no n Off 0 true T Yes y ON 1 "):gmatch "(.-) " do
            memory:exec("delete from said")
            memory:exec("insert into said values(?)", text)
            read[#read + 1] = memory:one "select a from said".a
          end
          memory:exec "update said set a = ''"
          read[#read + 1] = memory:one "select a from said".a
          local refused = {}
          for i, value in ipairs { "maybe", "true ", "a\0b", ls.buffer("false") } do
            memory:exec("update said set a = ?", value)
            refused[2 * i - 1] = select(2, ls.try(memory.one, memory, "select a from said")).message:match "^.-holds the %a+"
            refused[2 * i] = select(2, ls.try(memory.one, memory, "update said set a = a returning a")).code
          end
          memory:exec "drop table said"
          return read, refused
        """), [[False] * 6 + [True] * 6 + [False],
               ["the column a is declared boolean and holds the text", "EINVAL"] * 3
               + ["the column a is declared boolean and holds the blob", "EINVAL"]])
        self.server.wait_log('warn ls.sqlite: the column a is declared boolean and holds the text "false": it reads as false, and in SQL no text '
                             "is true; store true or false, as db:insert and db:update do, in: select a from said", mark)

    def test_texts_of_a_form_are_booleans_in_sql_too(self):
        """What reads as true is true in a condition: insert, update and delete store 1 and 0, and find them."""
        self.assertEqual(self.run_lua("""
          memory:exec "create table todo(id integer primary key, Done boolean not null default 0, title text)"
          local function count(sql) return memory:one("select count(*) as n from todo where " .. sql).n end
          for _, text in ipairs { "on", "True", "1", "yes", 1 } do memory:insert("todo", { done = text, title = "on" }) end
          for _, text in ipairs { "", "off", "0", "No", 0, 0.0 } do memory:insert("todo", { done = text, title = "1" }) end
          memory:transaction(function(tx) tx:insert("main.todo", { done = "y", title = "y" }) end)
          local counts = { count "done", count "not done", count "typeof(done) = 'integer'", count "typeof(title) = 'text'" }
          memory:update("todo", { done = "on" }, { done = "off", title = { "1" } })
          counts[5] = count "done"
          counts[6] = memory:delete("todo", { done = { "on", ls.json.null } })
          local refused = {}
          for i, call in ipairs {
            function() memory:insert("todo", { done = "checked" }) end, function() memory:insert("todo", { done = 5 }) end,
            function() memory:update("todo", { done = "maybe" }, { id = 1 }) end, function() memory:delete("todo", { done = "x" }) end,
            function() memory:transaction(function(tx) tx:insert("todo", { done = "checked" }) end) end,
          } do refused[i] = select(2, pcall(call)):match "%a+:%a+: the column.*" end
          local missing = pcall(memory.insert, memory, "todont", { a = "x" })
          memory:exec "drop table todo"
          return counts, refused, missing
        """), [[6, 6, 12, 12, 12, 12],
               ["%s: the column done is declared boolean: give true or false; got %s" % one for one in
                (("db:insert", '"checked"'), ("db:insert", "5"), ("db:update", '"maybe"'), ("db:delete", '"x"'), ("tx:insert", '"checked"'))],
               False])

    def test_a_text_for_a_column_that_is_declared_as_a_number(self):
        self.assertEqual(self.run_lua("""
          memory:exec "create table prod(id integer primary key, Stock int, price real, size text)"
          local row = memory:insert("prod", { stock = " 12 ", price = "1.5", size = "x" })
          local results = { row.Stock, row.price, memory:update("prod", { size = "y" }, { stock = "many" }) }
          for _, columns in ipairs { { stock = "stock - 1" }, { price = "" }, { stock = "0x10" } } do
            results[#results + 1] = select(2, pcall(memory.update, memory, "prod", columns, { id = 1 })):match "%a+:%a+: the column.*"
          end
          memory:exec "drop table prod"
          return results
        """), [[12, 1.5, 0, *("db:update: the column %s is declared as a number, and SQLite would store this text; for what depends on the "
                             "old value write a statement; got %s" % one for one in (("stock", '"stock - 1"'), ("price", '""'), ("stock", '"0x10"')))]])

    def test_a_misspelt_name_of_a_parameter_raises(self):
        self.assertEqual(self.run_lua("""
          local sql, messages = "select :note as note, @n as n, :note as again", {}
          for i, fields in ipairs { { Note = "x", n = 1 }, { note = "x", m = 1, n = 1 }, { note = "x" }, {}, { note = ls.json.null, n = 1, N = 2 } } do
            local fine, result = pcall(db.one, db, sql, fields)
            messages[i] = fine and result or tostring(result):match "the parameter.*json.null"
          end
          return messages
        """), [["the parameter :note has no field, and no parameter uses the field Note: one name is misspelt; for NULL write "
               "note = ls.json.null", {"note": "x", "n": 1, "again": "x"}, {"note": "x", "again": "x"}, {}, {"n": 1}]])

    def test_named_parameters_take_the_fields_of_a_table(self):
        self.assertEqual(self.run_lua("""
          return db:one("select :a as a, @b as b, $c as c", { a = 1, b = "x", c = 2.5, more = {}, fn = print, job = coroutine.create(print) })
        """), [{"a": 1, "b": "x", "c": 2.5}])

    def test_rows_are_tables_without_null(self):
        self.assertEqual(self.run_lua("return db:query 'select 1 as a, null as b union all select null, 2'"),
                         [[{"a": 1}, {"b": 2}]])
        self.assertEqual(self.run_lua("return ls.json.encode(db:query 'select * from item')"), ["[]"])
        self.assertEqual(self.run_lua("return #db:query 'select * from item', db:one 'select * from item'"), [0, None])

    def test_returning_gives_rows_of_a_write(self):
        self.assertEqual(self.run_lua("return db:query \"insert into item(name) values('a'), ('b') returning name\""),
                         [[{"name": "a"}, {"name": "b"}]])

    def test_a_statement_that_was_prepared_has_the_columns_of_an_altered_table(self):
        self.assertEqual(self.run_lua("""
          db:exec "create table altered(a)"
          db:exec "insert into altered values(1)"
          local names = {}
          local function note(row)
            local list = {}
            for name, value in pairs(row) do list[#list + 1] = name .. "=" .. value end
            table.sort(list)
            names[#names + 1] = table.concat(list, " ")
          end
          note(db:one "select * from altered")
          for _, change in ipairs { "add column b default 2", "rename column a to c", "drop column c", "add column d default 4" } do
            db:exec("alter table altered " .. change)
            note(db:one "select * from altered")
          end
          db:exec "drop table altered"
          return names
        """), [["a=1", "a=1 b=2", "b=2 c=1", "b=2", "b=2 d=4"]])

    def test_wrong_statements_raise(self):
        for code, message in (
                ("db:query 'select * form item'",
                 'chunk:1: db:query: site.db: near "form": syntax error at byte 10 in: select * form item'),
                ("db:exec 'insert into none values(1)'", "no such table: none"),
                ("db:one('select ?')", "the statement has 1 parameter; got 0 values"),
                ("db:one('select 1', 2)", "the statement has 0 parameters; got 1 value"),
                ("db:one('select ?', {})", "to parameters with names"),
                ("db:one('select ?, ?', {}, 1)", "a value must be nil, a boolean, a number, a string or a buffer; got a table"),
                ("db:exec 'select 1; select 2'", "several statements"),
                ("db:one('select :a as a, @tags as b', { a = 1, tags = { 'x' } })",
                 "@tags: a value must be nil, a boolean, a number, a string or a buffer; got a table"),
                ("db:one('select :fn as f', { fn = print })", ":fn: a value must be nil"),
                ("db:exec ' -- nothing'", "no statement"),
                ("db:exec 'begin'", "db:transaction(fn)"),
                ("db:exec \"attach 'x.db' as x\"", "ls.sqlite"),
                ("db:exec 'pragma journal_mode = delete'", "see its options"),
                ("db:exec(1)", "the statement must be a string; got 1"),
                ("db.exec('select 1')", "call it with a colon"),
                ("db:qery('select 1')", "did you mean 'query'?"),
                ("ls.sqlite('')", "path must be a string"),
                ("ls.sqlite('site.db', { readers = 3 })", "site.lua:5, which stay until a restart"),
                ("db:transaction()", "the argument must be a function"),
        ):
            with self.subTest(code):
                self.raises(code, message)

    def test_failures_have_a_code(self):
        self.run_lua("db:exec \"insert into item(id, name) values(1, 'a')\"")
        self.fails("return db:exec \"insert into item(name) values('a')\"", "UNIQUE constraint failed: item.name", "EEXIST")
        self.fails("return db:query \"insert into item(id) values(1)\"", "UNIQUE constraint failed: item.id", "EEXIST")
        self.fails("return db:one('select json_extract(?, 1)', '{')", "malformed JSON", "EINVAL")

    def test_a_value_has_at_most_64_mib(self):
        self.assertEqual(self.run_lua("return db:one('select length(zeroblob(?)) as n', 64 << 20).n"), [64 << 20])
        self.fails("return db:one('select length(zeroblob(?)) as n', (64 << 20) + 1)", "too big", "EMSGSIZE")

    def test_a_full_database_is_enospc(self):
        self.run_lua("""
          local pages = db:one("pragma page_count").page_count
          db:exec("pragma max_page_count = " .. pages + 10)
        """)
        self.fails("return db:exec('insert into item(data) values(zeroblob(1000000))')", "full", "ENOSPC")
        self.run_lua("db:exec 'pragma max_page_count = 1000000'")
        self.assertEqual(self.run_lua("return db:exec('insert into item(n) values(1)').changes"), [1])

    def test_a_long_result_is_complete(self):
        self.assertEqual(self.run_lua("""
          local rows = db:query(slow:gsub("select count%(%*%) as n", "select n, 'some text' as t"), 100000)
          local sum, count = 0, 0
          for row in db:rows(slow:gsub("select count%(%*%) as n", "select n"), 100000) do
            sum, count = sum + row.n, count + 1
          end
          return #rows, rows[1].n, rows[100000].n, rows[77777].t, sum, count
        """), [100000, 1, 100000, "some text", 5000050000, 100000])

    def test_64_results_at_a_time_may_have_rows_left(self):
        self.assertEqual(self.run_lua("""
          local sql = slow:gsub("select count%(%*%) as n", "select n, zeroblob(1000) as b")
          local open = {}
          for n = 1, 64 do
            local next, _, _, close = db:rows(sql, 1000)
            assert(next().n == 1)
            open[n] = close
          end
          local fine, message = pcall(db.rows, db, sql, 1000)
          for n = 1, 64 do local _ <close> = open[n] end
          for row in db:rows(sql, 1000) do
            if row.n == 2 then break end -- the loop gives the connection back
          end
          for _ = 1, 200 do for row in db:rows(sql, 1000) do break end end
          return fine, message.message:match("too many results[^:]*"), db:one("select 1 as n").n
        """), [False, "too many results at a time, of which rows are left", 1])

    # ---- transactions --------------------------------------------------------------------------------------------------

    def test_a_transaction_is_committed_or_undone(self):
        count = "return db:one('select count(*) as n from item').n"
        self.assertEqual(self.run_lua("""
          return db:transaction(function(tx)
            tx:exec("insert into item(name) values('a')")
            assert(tx:one("select count(*) as n from item").n == 1)
            ls.spawn(function() gate:send(db:one("select count(*) as n from item").n) end)
            assert(gate:receive() == 0) -- another task sees what is committed
            return "x", tx:query("select name from item")[1].name
          end)
        """), ["x", "a"])
        self.assertEqual(self.run_lua(count), [1])
        self.assertEqual(self.run_lua("return db:transaction(function() end)"), [True])
        for refusal in "setmetatable({ ok = false }, { __name = 'answer' })", "res:status(409)":
            self.run_lua("""ls.app():get("/", function(_, res)
              db:transaction(function(tx) tx:exec("delete from item") return %s end)
              return 204
            end):inject { path = "/" }""" % refusal)
        self.assertEqual(self.run_lua(count), [1])
        self.fails("""return db:transaction(function(tx)
          tx:exec("insert into item(name) values('b')")
          tx:exec("insert into item(name) values('a')") -- what fails ends it
          return 1
        end)""", "UNIQUE", "EEXIST")
        self.raises("db:transaction(function(tx) tx:exec('delete from item') error('oops') end)", "oops")
        self.raises("db:transaction(function(tx) tx:exec('delete form item') end)", 'tx:exec: site.db: near "form"')
        self.raises("db:transaction(function(tx) db:exec('delete from item') end)", "use the argument of its function")
        for read in ("db:one 'select 1'", "db:query 'select 1'", "for _ in db:rows 'select 1' do end", "db:transaction(print)"):
            self.raises(f"db:transaction(function(tx) tx:exec('delete from item') {read} end)", "such as tx:exec, or { tx = tx } of queue:push")
        self.raises("local t db:transaction(function(tx) t = tx end) t:exec('delete from item')",
                    "the transaction has ended")
        self.assertEqual(self.run_lua(count), [1])

    def test_a_transaction_of_a_task_that_is_ended_is_undone(self):
        with self.server.connect() as conn:
            conn.send(b"POST /run HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n" + (
                "db:transaction(function(tx) tx:exec 'insert into item(n) values(1)' gate:receive() end)".ljust(100).encode()))
            self.eventually(lambda: self.run_lua("return ls.stats().tasks >= 0")[0], "the server answers")
            self.run_lua("while ls.stats().sqlite_statements == 0 do ls.sleep(0.001) end")
            done = []
            writer = threading.Thread(target=lambda: done.append(self.run_lua("return db:exec('update item set n = 2')")))
            writer.start()
            self.eventually(lambda: self.stat("waiting") == 1, "another write waits for the transaction")
        writer.join(WAIT)  # the client has left, so the task has ended
        self.assertEqual(done, [[{"changes": 0}]])

    def test_a_transaction_that_takes_long_is_logged(self):
        mark = self.server.mark()
        self.run_lua("db:transaction(function(tx) tx:exec('delete from item where n = -1') ls.sleep(1.1) end)")
        self.server.wait_log(r"warn .*: a transaction took 1\.\d s, in which all others that write have waited", mark)

    def test_a_transaction_is_of_one_task(self):
        results = self.run_lua("""
            local other
            local done = db:transaction(function(tx)
              local job = ls.spawn(function() other = { pcall(tx.query, tx, slow, 10) } end)
              local row = tx:one(slow, 300000)
              job:wait()
              return row.n
            end)
            return done, other[1], tostring(other[2])""")
        self.assertEqual(results[:2], [300000, False])
        self.assertIn("another task waits for a statement of this transaction", results[2])

    def test_reads_whose_time_is_over_end_in_memory_too(self):
        """There all statements have one connection."""
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(self.server.connect()).send(b"GET /forever/memory HTTP/1.1\r\nHost: h\r\n\r\n")
            self.eventually(lambda: self.stat("waiting") == 4, "one runs, four wait")
        self.assertEqual(self.run_lua("return memory:one('select 1 as n').n"), [1])
        self.assertEqual(self.stat("waiting"), 0)

    def test_writes_that_wait_are_committed_together(self):
        holder = threading.Thread(target=self.run_lua, args=(
            "db:transaction(function(tx) tx:exec 'delete from item' gate:receive() end)",))
        statements = self.stat("statements")
        holder.start()
        self.eventually(lambda: self.stat("statements") >= statements + 2, "the transaction has the writer")
        writers = [threading.Thread(target=self.run_lua, args=("db:exec('insert into item(name) values(?)', %d)" % n,))
                   for n in range(20)]
        for writer in writers:
            writer.start()
        self.eventually(lambda: self.stat("waiting") == 20, "all wait")
        commits = self.stat("commits")
        self.run_lua("gate:send(1)")
        for thread in writers + [holder]:
            thread.join(WAIT)
        self.assertEqual(self.stat("commits") - commits, 2)  # of the transaction, of the 20
        self.assertEqual(self.run_lua("return db:one('select count(*) as n from item').n"), [20])

    def test_a_statement_that_undoes_a_group_does_not_undo_the_others(self):
        self.run_lua("db:exec \"insert into item(name) values('taken')\"")
        holder = threading.Thread(target=self.run_lua, args=(
            "db:transaction(function(tx) tx:exec 'update item set n = 1' gate:receive() end)",))
        statements = self.stat("statements")
        holder.start()
        self.eventually(lambda: self.stat("statements") >= statements + 2, "the transaction has the writer")
        results = {}

        def write(name):
            results[name] = self.results("return db:exec('insert or rollback into item(name) values(?)', '%s')" % name)

        threads = []
        for name in ("a", "taken", "b"):
            threads.append(threading.Thread(target=write, args=(name,)))
            threads[-1].start()
            self.eventually(lambda: self.stat("waiting") == len(threads), "it waits")
        self.run_lua("gate:send(1)")
        for thread in threads + [holder]:
            thread.join(WAIT)
        self.assertEqual((results["a"][1]["changes"], results["taken"][3], results["b"][1]["changes"]), (1, "EEXIST", 1))
        self.assertEqual(self.run_lua("return db:one('select count(*) as n from item').n"), [3])

    # ---- time ------------------------------------------------------------------------------------------------------------

    def test_readers_that_are_busy_delay_no_other_request(self):
        conns = [self.connect() for _ in range(4)]
        for conn in conns:
            conn.send(b"GET /forever HTTP/1.1\r\nHost: h\r\n\r\n")
        self.eventually(lambda: self.stat("waiting") >= 2, "two statements run, and two wait")
        with self.server.connect() as conn:
            for _ in range(repeats(200)):
                self.assertEqual(conn.get("/hello").text, "hello")
        self.assertEqual(self.run_lua("return db:exec('insert into item(n) values(1)').changes"), [1])
        self.assertEqual([conn.response().status for conn in conns], [503] * 4)  # their time interrupts them
        self.assertEqual(self.run_lua("return db:one(slow, 1000).n"), [1000])
        self.eventually(lambda: self.stat("waiting") == 0, "no statement waits")

    def test_the_deadline_of_a_request_interrupts_its_statement(self):
        self.assertEqual([r.status for r in in_parallel([lambda: self.get("/slow")] * 3)], [503] * 3)
        self.assertEqual([r.status for r in in_parallel([lambda: self.get("/rows")] * 3)], [503] * 3)
        self.assertEqual(self.run_lua("return db:one(slow, 1000).n"), [1000])

    def test_another_program_may_hold_the_lock(self):
        with contextlib.closing(sqlite3.connect(self.server.dir + "/site.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            done = []
            moved = self.stat("moved")
            with beside(lambda: done.append(self.run_lua("return db:exec('insert into item(n) values(1)')"))):
                self.eventually(lambda: self.stat("moved") > moved, "the write waits for the lock")
                self.assertEqual(self.run_lua("return db:one('select count(*) as n from item').n"), [0])  # readers do not
                other.execute("commit")
            self.assertEqual(done[0][0]["changes"], 1)
            other.execute("begin immediate")
            self.fails("return db:exec('insert into item(n) values(2)')", "locked", "EBUSY")  # after 5 s
            other.execute("rollback")

    # ---- files -----------------------------------------------------------------------------------------------------------

    def test_a_backup_is_a_whole_database(self):
        self.run_lua("db:exec \"insert into item(name) values('a')\"")
        path = self.server.dir + "/copy.db"
        for _ in range(2):  # the second replaces the first
            self.assertEqual(self.run_lua("return db:backup('copy.db')"), [True])
            with contextlib.closing(sqlite3.connect(path)) as copy:
                self.assertEqual(copy.execute("select name from item").fetchall(), [("a",)])
                self.assertEqual(copy.execute("pragma integrity_check").fetchall(), [("ok",)])
        self.assertEqual(self.run_lua("""
          local jobs, results = {}, {}
          for n = 1, 4 do
            jobs[n] = ls.spawn(function() results[n] = { db:backup("copy.db") } end)
          end
          for n = 1, 4 do jobs[n]:wait() end
          return results
        """), [[[True]] * 4])  # at a time
        with contextlib.closing(sqlite3.connect(path)) as copy:
            self.assertEqual(copy.execute("select name from item").fetchall(), [("a",)])
        self.assertEqual([name for name in os.listdir(self.server.dir) if ".luaserve-" in name or name.endswith(".part")], [])
        self.fails("return db:backup('none/copy.db')", "db:backup: none/copy.db: ", "ENOENT")
        self.assertEqual(self.run_lua("memory:exec 'create table if not exists t(a)' return memory:backup('memory.db')"), [True])
        with contextlib.closing(sqlite3.connect(self.server.dir + "/memory.db")) as copy:
            self.assertEqual(copy.execute("select count(*) from t").fetchall(), [(0,)])

    def test_names_of_files_are_utf8(self):
        self.assertEqual(self.run_lua("""
          local other = ls.sqlite("bücher 書.db")
          other:exec("create table if not exists t(a)")
          return other:backup("kopie ü.db")
        """), [True])
        self.assertLessEqual({"bücher 書.db", "kopie ü.db"}, set(os.listdir(self.server.dir)))

    def test_a_database_in_memory_is_one_for_all_states_and_survives_a_reload(self):
        server = self.serve(PRELUDE)
        self.run_lua("memory:exec 'create table kept(a)' memory:exec 'insert into kept values(5)'", server)
        server.reload()
        for _ in range(4):
            self.assertEqual(self.run_lua("return memory:one('select a from kept').a", server), [5])
        self.assertEqual(self.run_lua("return memory:transaction(function(tx) return tx:one('select a from kept').a end)",
                                      server), [5])

    def test_files_that_are_no_databases_are_refused(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        write_text(folder + "/text.db", "no database at all" * 100)
        head = "local ls = require 'luaserve'\n"
        self.refuses(head + "ls.sqlite('%s/text.db')" % folder, "site.lua:2: ls.sqlite: %s/text.db: file is not a database" % folder)
        self.refuses(head + "ls.sqlite('%s/none/a.db')" % folder, "unable to open database file")
        self.refuses(head + "ls.sqlite('%s')" % folder, "unable to open database file")
        if not WINDOWS:
            os.mkfifo(folder + "/fifo")
            os.symlink("loop", folder + "/loop")
            self.refuses(head + "ls.sqlite('%s/fifo')" % folder, "disk I/O error")
            self.refuses(head + "ls.sqlite('%s/loop')" % folder, "unable to open database file")

    def test_a_damaged_file_is_eio(self):
        self.run_lua("for n = 1, 300 do db:exec('insert into item(name, data) values(?, zeroblob(2000))', 'n' .. n) end")
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        self.assertEqual(self.run_lua("return db:backup('%s/bad.db')" % folder), [True])
        with open(folder + "/bad.db", "r+b") as out:
            out.seek(8192)
            out.write(b"\xff" * 400000)
        self.fails("local bad = ls.sqlite('%s/bad.db') return bad:query('select * from item')" % folder, "malformed", "EIO")

    def test_each_page_and_header_byte_may_be_damaged(self):
        """A damaged file, also one with parts of another process beside it, never ends or stops the server."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        with contextlib.closing(sqlite3.connect(folder + "/whole.db", isolation_level=None)) as made:
            made.executescript("""pragma page_size = 512; create table item(id integer primary key, n, data);
                create index by_n on item(n); create view v as select n, data from item order by n;
                create trigger t after insert on item begin update item set n = n + 1; end;
                create table g(a, b generated always as (a || 'x') stored, c as (abs(a)));
                insert into g(a) values(1);
                with recursive c(x) as (select 1 union all select x + 1 from c where x < 99)
                insert into item(n, data) select x, zeroblob(x * 9) from c""")
        whole = read_bytes(folder + "/whole.db")
        random = Random(1)
        damaged = [whole[:random.randrange(len(whole))] for _ in range(40)]
        for at in [*range(0, len(whole), 512), *range(100)]:
            bad = bytearray(whole)
            for n in range(8 if at % 512 == 0 else 1):  # the first bytes of a page say what the others are
                bad[at + n + (at == 0) * 100] = random.randrange(256)
            damaged.append(bad)
        for n, bad in enumerate(damaged):
            write_bytes("%s/%d.db" % (folder, n), bad)
            if n % 3 < 2:
                write_bytes("%s/%d.db%s" % (folder, n, ("-wal", "-journal")[n % 3]), b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + random.randbytes(3000))
        codes, = self.run_lua("""
          local codes = {}
          local function try(...)
            local ok, e = pcall(...)
            codes[ok and "fine" or e.code or tostring(e):gsub("^.*%%.db: ", "")] = true
            return e
          end
          for n = 0, %d do
            local db = try(ls.sqlite, "%s/" .. n .. ".db")
            for _, sql in ipairs(type(db) ~= "string" and { "select * from item", "select * from v", "select * from g",
              "insert into item(n) values(5)", "delete from item where n > 50", "vacuum" } or {}) do try(db.query, db, sql) end
          end
          return codes""" % (len(damaged) - 1, folder))
        self.assertLessEqual({"fine", "EIO", "file is not a database"}, set(codes))

    def test_a_database_has_one_list_of_migrations(self):
        """The second call would take its first migration for that of the first call, and not run it."""
        two = """local ls = require "luaserve"
ls.sqlite("@DIR@/m.db"):migrate { "create table a(x)" }
ls.sqlite("@DIR@/m.db", { readers = 2 }):migrate { "create table b(x)" }
"""
        self.refuses(two, "site.lua:3: db:migrate: this database gets another list at @DIR@/site.lua:2; a database counts its "
                     "migrations: put all of them into one list, in one call")

    def test_migrations_run_once_and_in_order(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        site = PRELUDE.replace('"site.db"', '"%s/m.db"' % folder)
        lists = ["'create table a(x); insert into a values(1);'", "'insert into a values(2) -- comment'",
                 "'insert into a values(3)'"]

        def migrated(count):
            return site.replace("db:migrate {", "db:migrate { %s } --" % ", ".join(lists[:count]))

        for count, rows in ((1, 1), (3, 3), (3, 3)):
            server = self.serve(migrated(count))
            self.assertEqual(self.run_lua("return #db:query 'select x from a'", server), [rows])
            server.stop()
        self.refuses(migrated(2), "the database has version 3, and the list has 2")
        lists[1] = "'insert into a values(7)'"
        self.refuses(migrated(3), "site.lua:6: db:migrate: migration 2 was edited after it has run, and a migration runs once")
        lists[1] = "'insert into a  values(2)\\n -- comment'"
        lists.append("'insert into a values(4); insert into b values(5)'")
        self.refuses(migrated(4), "site.lua:6: db:migrate: migration 4: %s/m.db: no such table: b" % folder)
        server = self.serve(migrated(3))  # the fourth was undone
        self.assertEqual(self.run_lua("return #db:query 'select x from a'", server), [3])

    def test_what_was_acknowledged_is_there_after_a_crash(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        site = PRELUDE.replace('"site.db"', '"%s/crash.db"' % folder)
        acknowledged = set()
        for crash in range(repeats(20)):
            server, killed = self.serve(site), threading.Event()

            def write(worker, crash=crash, server=server, killed=killed):
                for n in range(1000000):
                    name = "%d-%d-%d" % (crash, worker, n)
                    code = "assert(db:exec('insert into item(name) values(?)', '%s'))" % name
                    if worker == 3:  # two rows, or none
                        code = "db:transaction(function(tx) for _, n in ipairs { '%s', '%s' } do " \
                               "tx:exec('insert into item(name) values(?)', n) end end)" % (name, name + "+")
                    try:
                        results = self.results(code, server)
                        if not results[0]:
                            raise AssertionError(name, results)
                    except Exception:  # pylint: disable=broad-except
                        if not killed.is_set():
                            raise
                        return
                    acknowledged.add(name)

            before = len(acknowledged)
            with beside(*[lambda worker=worker: write(worker) for worker in range(4)]):
                self.eventually(lambda before=before: len(acknowledged) > before + 10, "writes are acknowledged")
                killed.set()
                server.kill()
            with contextlib.closing(sqlite3.connect(folder + "/crash.db")) as check:
                self.assertEqual(check.execute("pragma integrity_check").fetchall(), [("ok",)])
                names = {row[0] for row in check.execute("select name from item")}
            self.assertLessEqual(acknowledged, names)
            self.assertEqual([n for n in names if "-3-" in n and not n.endswith("+") and n + "+" not in names], [])
            server.cleanup()
