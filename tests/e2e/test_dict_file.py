"""ls.dict with file: kept over restarts, expiry, many changes in one write, sync, failures of the file, crashes."""
import contextlib
import os
import sqlite3
import subprocess
import threading

from harness import LUASERVE, OTHER_SYSTEM, WAIT, app_site, beside, has_sqlite, repeats, write_text
from harness.chunks import ROUTE, Chunks

SITE = app_site(r"""
ls.config { threads = 4 }
local kept = ls.dict("kept", { file = "%s/dicts.db", size = "4m" })
local sync = ls.dict("sync", { file = "%s/dicts.db", sync = true })
local env = { kept = kept, sync = sync, ls = ls }
""").replace("ls.listen", ROUTE + "ls.listen")
HAS_SQLITE = has_sqlite()


class DictFile(Chunks):
    def setUp(self):
        if not HAS_SQLITE:
            self.skipTest(OTHER_SYSTEM + "this luaserve has no SQLite")
        super().setUp()
        self.folder = self.new_folder()
        self.site = SITE.replace("%s", self.folder)

    def rows(self, sql):
        with contextlib.closing(sqlite3.connect(self.folder + "/dicts.db")) as file:
            return file.execute(sql).fetchall()

    def test_every_kind_of_value_is_there_after_a_restart(self):
        server = self.serve(self.site)
        self.run_lua(server, r"""
          kept.text, kept.empty, kept.binary = "äöü", "", "a\0\xff"
          kept.int, kept.least, kept.float, kept.yes, kept.no, kept.null = 1 << 62, math.mininteger, 0.1, true, false, ls.json.null
          kept.nan, kept.huge = 0/0, -math.huge
          kept.table = { a = { 1, 2.5, "x", { deep = true } }, [5] = "five", [true] = ls.json.array {} }
          kept[7], kept["7"], kept[""] = "integer key", "string key", "empty key"
          kept:rpush("list", 1, "two", { 3 }, false)
          kept:set("later", 1, 1000)
          kept:set("soon", 1, 0.001)
          kept.gone, kept.again = 1, 1
          kept.gone = nil
          kept:delete("again") kept.again = 2
          kept:incr("count", 5)
          kept:update("count", function(n) return n + 1 end)
          kept:add("expires", 1) kept:expire("expires", 2000)
        """)
        server.stop()
        server = self.serve(self.site)
        self.assertEqual(self.run_lua(server, r"""
          assert(kept.text == "äöü" and kept.empty == "" and kept.binary == "a\0\xff")
          assert(kept.int == 1 << 62 and kept.least == math.mininteger and kept.float == 0.1 and math.type(kept.int) == "integer")
          assert(kept.yes == true and kept.no == false and kept.null == ls.json.null)
          assert(kept.nan ~= kept.nan and kept.huge == -math.huge)
          assert(kept.table.a[4].deep and kept.table.a[2] == 2.5 and kept.table[5] == "five")
          assert(ls.json.encode(kept.table[true]) == "[]")
          assert(kept[7] == "integer key" and kept["7"] == "string key" and kept[""] == "empty key")
          local list = kept:range("list")
          assert(#list == 4 and list[2] == "two" and list[3][1] == 3 and list[4] == false)
          assert(kept:ttl("later") > 900 and kept:ttl("later") <= 1000 and kept:ttl("expires") > 1900)
          return kept.soon, kept.gone, kept.again, kept.count, #kept
        """), [None, None, 2, 6, 20])
        self.run_lua(server, "kept:clear()")
        server.stop()
        self.assertEqual(self.rows('select count(*) from "dict kept"'), [(0,)])

    def test_entries_can_be_read_with_sql(self):
        server = self.serve(self.site)
        self.run_lua(server, "sync.a, sync[5], sync.f = 'text', 2, 1.5")
        self.assertEqual(self.rows('select key, value, expires from "dict sync" order by key'),
                         [(5, 2, None), ("a", "text", None), ("f", 1.5, None)])

    def test_changes_are_written_without_a_stop(self):
        server = self.serve(self.site)
        self.run_lua(server, "for n = 1, 1000 do kept[n] = n end for n = 1, 500 do kept[n] = nil end")
        self.eventually(lambda: self.rows('select count(*), sum(key) from "dict kept"') == [(500, 375250)], "500 are in the file")
        server.kill()
        server = self.serve(self.site)
        self.assertEqual(self.run_lua(server, "return #kept, kept[501], kept[500]"), [500, 501, None])

    def test_what_sync_has_acknowledged_is_there_after_a_crash(self):
        acknowledged = {}
        for crash in range(repeats(20)):
            server, killed = self.serve(self.site), threading.Event()
            for key, value in acknowledged.items():
                if key.startswith("%d-" % (crash - 1)):
                    self.assertGreaterEqual(self.run_lua(server, "return sync['%s'] or 0" % key)[0], value, key)

            def write(key, server=server, killed=killed):
                for n in range(1, 1000000):
                    how = ("sync['%s'] = %d", "assert(sync:set('%s', %d))", "assert(sync:update('%s', function() return %d end))")[n % 3]
                    try:
                        if not self.results(server, how % (key, n))[0]:
                            raise AssertionError(key)
                    except Exception:  # pylint: disable=broad-except
                        if not killed.is_set():
                            raise
                        return
                    acknowledged[key] = n

            keys = ["%d-%d" % (crash, worker) for worker in range(4)]
            with beside(*[lambda key=key: write(key) for key in keys]):
                self.eventually(lambda keys=keys: sum(acknowledged.get(key, 0) for key in keys) > 10, "writes are acknowledged")
                killed.set()
                server.kill()
            self.assertEqual(self.rows("pragma integrity_check"), [("ok",)])
            server.cleanup()
        stored = dict(self.rows('select key, value from "dict sync"'))
        self.assertEqual([key for key, value in acknowledged.items() if stored.get(key, 0) < value], [])

    def test_a_crash_leaves_no_entry_with_a_number_that_is_given_again(self):
        for crash in range(repeats(5)):
            server, killed, answers = self.serve(self.site), threading.Event(), []
            used = self.run_lua(server, "local most = 0; for key in pairs(sync) do most = math.max(most, key) end return most, kept.ids or 0")
            self.assertGreaterEqual(used[1], used[0], crash)

            def write(server=server, killed=killed, answers=answers):
                while not killed.is_set():
                    try:
                        answers.append(self.results(server, "local id = kept:incr('ids') assert(sync:set(id, 'x')) return id"))
                    except Exception:  # pylint: disable=broad-except
                        return

            with beside(*[write] * 4):
                self.eventually(lambda answers=answers: len(answers) > 20, "writes are acknowledged")
                server.kill()
                killed.set()
            server.cleanup()

    def test_a_stop_says_what_could_not_be_written(self):
        server = self.serve(self.site)
        self.run_lua(server, "kept.a = 1 sync.a = 1")  # waits for both
        with contextlib.closing(sqlite3.connect(self.folder + "/dicts.db", isolation_level=None)) as other:
            other.execute('drop table "dict kept"')
        self.run_lua(server, "kept.a, kept.b = 2, 3")
        server.stop()
        self.assertIn('the dict "kept" could not be written to its file: changes of 2 entries are lost', server.log())

    def test_a_file_that_cannot_be_written_is_an_error_of_sync(self):
        server = self.serve(self.site)
        self.run_lua(server, "sync.a = 1")
        with contextlib.closing(sqlite3.connect(self.folder + "/dicts.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            self.fails(server, "return sync:set('a', 2)", "chunk:1: dict 'sync': the dict is changed, but not its file", "EBUSY")
            server.wait_log('the dict "sync" cannot be written to its file, which is tried again; its changes wait in memory: database is locked')
            other.execute("rollback")
        self.assertEqual(self.run_lua(server, "return sync:set('b', 3), sync.a"), [True, 2])
        server.wait_log('the dict "sync" is written to its file again')
        self.assertEqual(self.rows('select key, value from "dict sync" order by key'), [("a", 2), ("b", 3)])

    def test_a_backup_while_the_server_writes(self):
        server = self.serve(self.site)
        self.run_lua(server, "for n = 1, 500 do sync[n] = n end")
        with contextlib.closing(sqlite3.connect(self.folder + "/dicts.db")) as live:
            with contextlib.closing(sqlite3.connect(self.folder + "/copy.db")) as copy:
                live.backup(copy)
                self.assertEqual(copy.execute('select count(*), max(value) from "dict sync"').fetchone(), (500, 500))
        self.assertEqual(self.run_lua(server, "return sync:set(501, 1)"), [True])

    def test_while_the_file_cannot_be_written_each_key_waits_once(self):
        server = self.serve(self.site)
        self.run_lua(server, "sync.a, sync.gone = 1, 1")
        with contextlib.closing(sqlite3.connect(self.folder + "/dicts.db", isolation_level=None)) as other:
            other.execute('alter table "dict sync" rename to aside')
            self.assertEqual(self.run_lua(server, """
              local codes = {}
              for n = 1, 100 do
                local _, e = ls.try(sync.set, sync, "a", n)
                assert(not e.retry)
                codes[e.code] = (codes[e.code] or 0) + 1
                ls.try(sync.set, sync, "new" .. n, n)
                ls.try(sync.delete, sync, "new" .. n)
              end
              ls.try(sync.delete, sync, "gone")
              return codes
            """), [{"EIO": 100}])
            self.assertEqual(server.log().count('the dict "sync" cannot be written to its file'), 1)
            other.execute("create table written(key)")
            other.execute("create trigger count_writes after insert on aside begin insert into written values(new.key); end")
            other.execute('alter table aside rename to "dict sync"')
        self.assertEqual(self.run_lua(server, "return sync:set('b', 1)"), [True])
        writes = [key for key, in self.rows("select key from written")]
        self.assertEqual(writes.count("b"), 1)
        self.assertLessEqual(len(writes), 4, writes)  # the changes of the write that failed, and the later ones
        self.assertEqual(self.rows('select key, value from "dict sync" order by key'), [("a", 100), ("b", 1)])

    def test_a_file_belongs_to_one_process(self):
        reason = "/dicts.db: the file is in use by another process: a dict file belongs to one server; several servers share a dict in Redis (redis = true)"
        for end in "stop", "kill":
            server = self.serve(self.site)
            self.run_lua(server, "sync.a = '%s'" % end)
            log = self.refuses(self.site, reason)
            self.assertIn("site.lua:5: ls.dict: ", log)
            self.refuses("local ls = require 'luaserve'\nls.dict('other', { file = '%s/dicts.db' })" % self.folder, reason)
            checked = subprocess.run([LUASERVE, "--check", "-e", self.site], capture_output=True, text=True, timeout=WAIT, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertEqual(self.run_lua(server, "return sync.a"), [end])
            getattr(server, end)()
        server = self.serve(self.site)
        self.assertEqual(self.run_lua(server, "return sync.a"), ["kill"])

    def test_wrong_options_and_files_are_refused(self):
        head = "local ls = require 'luaserve'\n"
        file = self.folder + "/a.db"
        self.refuses(head + "ls.dict('d', { sync = true })", "site.lua:2: ls.dict: sync = true needs the option file")
        self.refuses(head + "ls.dict('d', { file = 5 })", "file must be the path of a file")
        self.refuses(head + "ls.dict('d', { file = '%s/none/a.db' })" % self.folder, "unable to open database file")
        self.refuses(head + "ls.dict('d')\nls.dict('d', { file = '%s' })" % file, "has other options at")
        self.refuses(head + "ls.dict('Day', { file = '%s' })\nls.dict('day', { file = '%s' })" % (self.folder + "/b.db", self.folder + "/b.db"),
                     'site.lua:3: ls.dict: %s/b.db: the dict "Day" has its entries in this file: names must differ in more than capital letters' % self.folder)
        write_text(file, "no database" * 1000)
        self.refuses(head + "ls.dict('d', { file = '%s' })" % file, "site.lua:2: ls.dict: %s: file is not a database" % file)

    def test_a_reload_with_another_file_or_sync_needs_a_restart(self):
        server = self.serve(self.site)
        for old, new in (("sync = true", "sync = false"), ("dicts.db\", size", "other.db\", size")):
            write_text(server.site, self.site.replace(old, new))
            server.reload("reload failed: .*has other options at .*; a change of file or sync needs a restart")

    def test_a_damaged_entry_is_refused_at_the_start(self):
        server = self.serve(self.site)
        self.run_lua(server, "sync.a = { 1, 2, 3 }")
        server.stop()
        whole = self.rows('select value from "dict sync"')[0][0]
        # test_marshal.c damages each byte of the code of a value
        for value in (whole[:1], whole[:-1], whole + b"\0", b"v\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"l\x04", b"l\x09" + b"\0" * 8, b"z", b"t1"):
            self.refuses_after('update "dict sync" set value = ?', "an entry of the dict is damaged", value)
        for row in (b"a", 1, None), (1.5, 1, None), ("a", 1, -1), ("a", 1, "soon"), ("a", 1, 1e300):
            self.refuses_after('delete from "dict sync"')
            self.refuses_after('insert into "dict sync" values(?, ?, ?)', "an entry of the dict is damaged", *row)

    def refuses_after(self, sql, message=None, *values):
        with contextlib.closing(sqlite3.connect(self.folder + "/dicts.db")) as file:
            if values:
                file.execute(sql, values)
            else:
                file.executescript(sql)
            file.commit()
        if message:
            self.refuses(self.site, message)

    def test_a_file_whose_sql_would_run_or_change_values_is_refused(self):
        made = 'create table "dict sync"(key not null primary key, value, expires) without rowid;'
        for sql in ('create view "dict sync" as with recursive c(x) as (select 1 union all select x + 1 from c) '
                    "select x key, 1 value, 0 expires from c where x < 0",  # without an end
                    made + 'create trigger t after insert on "dict sync" begin delete from "dict sync"; end',
                    made + 'create unique index i on "dict sync"(value)',
                    'create table "DICT sync"(key, value, expires)',
                    'create table "dict sync"(key integer primary key, value text, expires)',
                    made.replace("expires)", "expires, g as (key || value))"),
                    "pragma encoding = 'UTF-16';" + made):
            if os.path.exists(self.folder + "/dicts.db"):
                os.remove(self.folder + "/dicts.db")
            self.refuses_after(sql, 'is not as luaserve makes it, or the file is not in UTF-8')

    def test_a_dict_that_has_become_too_small_is_refused(self):
        for fill in "sync[n] = ('x'):rep(1000)", "sync:rpush('list', ('x'):rep(1000))":
            server = self.serve(self.site)
            self.run_lua(server, "sync:clear() for n = 1, 100 do %s end" % fill)
            server.stop()
            self.refuses(self.site.replace("sync = true", 'size = "64k"'), "the entries in the file do not fit: give a larger size")

    def test_what_a_smaller_dict_has_removed_is_not_there_again(self):
        head = """local ls = require "luaserve"\nlocal app = ls.app()\nlocal kept = ls.dict("kept", { file = "%s/dicts.db", evict = true, size = "64k" })
""" % self.folder
        site = head + "local env = { kept = kept }\n" + ROUTE + 'ls.listen { host = "127.0.0.1", port = 0, handler = app }'
        server = self.serve(site.replace("64k", "1m"))
        self.run_lua(server, "for n = 1, 300 do kept[n] = ('x'):rep(1000) end")
        server.stop()
        checked = subprocess.run([LUASERVE, "--check", "-e", site], capture_output=True, text=True, timeout=WAIT, check=False)
        self.assertEqual((checked.returncode, self.rows('select count(*) from "dict kept"')), (0, [(300,)]), checked.stderr)
        server = self.serve(site)
        count, = self.run_lua(server, "return #kept")
        self.assertTrue(30 < count < 100, count)
        self.assertEqual(self.rows('select count(*) from "dict kept"'), [(count,)])
        self.run_lua(server, "for n = 1, 300 do kept:delete(n) end")
        server.stop()
        server = self.serve(site.replace("64k", "1m"))
        self.assertEqual(self.run_lua(server, "return #kept"), [0])

    def test_a_smaller_dict_is_loaded_while_another_one_of_the_file_is_written(self):
        server = self.serve(self.site.replace('size = "4m"', 'size = "4m", evict = true'))
        self.run_lua(server, "for n = 1, 20000 do kept[n] = n end")
        server.stop()
        site = self.site.replace('local kept = ls.dict("kept"', 'local kept = %s and ls.dict("kept"').replace('size = "4m"', 'size = "64k", evict = true')
        site = site.replace("ls.listen", """for n = 1, 4 do ls.every(0.001, function() sync:incr(n) end) end
ls.listen""")
        server = self.serve(site % "nil")
        write_text(server.site, site % "true")
        server.reload("reload failed|reloaded")
        count, = self.run_lua(server, "return #kept")
        self.assertEqual(self.rows('select count(*) from "dict kept"'), [(count,)])
