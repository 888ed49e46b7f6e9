"""Programs that work with one request by hand and fail silently under load, after a reload or with several states: `luaserve dev`
warns at each line with "-- WARN", and at no other."""
import re

from harness.dev import DevSites


def paths_of(site):
    return [(method.upper() + " " if method != "get" else "") + path for method, path in re.findall(r'app:(get|post|put|patch)\("(/[^"]*)"', site)]


class Load(DevSites):
    def check(self, site):
        self.check_lines(site, paths_of(site))

    def test_what_start_and_init_set_again(self):
        """A count that a new state, or a reload, sets back; not what nobody else changes."""
        self.check("""
local counts, other, version = ls.dict("counts"), ls.dict("other"), ls.dict("version")
local hits, seen, batch, base = 0, {}, 0, 0
ls.init(function()
  counts:set("n", 0) -- WARN dict:set in ls.init is repeated at each reload, .* others have written meanwhile: use dict:add
  version:set("at", os.time())
  other:add("n", 0)
end)
ls.on("start", function()
  counts.started = 0 -- WARN dict.key. = value in ls.on\\("start"\\) is repeated in each new Lua state, .*: use dict:add
  hits = 0
  seen = {}
  base = 1
  ls.every({ seconds = 60, each_state = true }, function() other:incr("all", batch) batch = 0 end)
end)
app:get("/", function()
  counts:incr("n")
  counts:incr("started")
  other:incr("n")
  hits = hits + 1 -- WARN changes hits, of which each Lua state has its own copy
  seen[#seen + 1] = hits -- WARN changes seen
  batch = batch + 1
  return { n = version.at, base = base }
end)""")

    def test_results_of_rows_that_are_always_true(self):
        self.check("""
local db = ls.sqlite("rows.db")
db:migrate { "create table t(id integer primary key, n); insert into t values(1, 1)" }
app:get("/a", function() return db:delete("t", { id = 9 }) and 204 or 404 end) -- WARN db:delete returns a number, and 0 is true in Lua: write db:delete\\(...\\) > 0
app:get("/b", function() return db:update("t", { n = 1 }, { id = 1 }) and 204 or 404 end) -- WARN db:update returns a number
app:get("/c", function() return db:exec("update t set n = 1") and 204 or 404 end) -- WARN the condition db:exec.* is a table
app:get("/d", function()
  local gone = db:delete("t", { id = 9 })
  if not gone then return 404 end -- WARN gone is the number that db:delete returns, and 0 is true in Lua: write gone == 0
  return 204
end)
app:get("/e", function()
  local done = db:exec("delete from t where id = 9")
  return done and 204 or 404 -- WARN done is the table that exec returns, which is always true: look at its changes
end)
app:get("/right", function()
  local gone = db:delete("t", { id = 9 })
  if gone == 0 and db:delete("t", { id = 9 }) == 0 then return db:update("t", { n = 1 }, { id = 1 }) > 0 and 204 or 404 end
  return gone > 0 and 204 or 404
end)""")

    def test_keys_of_requests_that_are_repeated(self):
        """The answer is kept after its effects: two requests with one key have both; a cache, which has none, is in order."""
        self.check("""
local seen, orders, pages, stats = ls.dict("seen"), ls.dict("orders"), ls.dict("pages"), ls.dict("stats")
local db = ls.sqlite("orders.db")
db:migrate { "create table o(n)" }
app:get("/sql", function(req)
  local old = seen:get("a" .. req.path)
  if old then return old end
  db:exec("insert into o values(1)")
  seen:set("a" .. req.path, { id = 1 }, 3600) -- WARN keeps the result in the dict "seen" after the effects .* use d:add\\(key, "pending", ttl\\) before them
  return { id = 1 }
end)
app:get("/dict", function(req)
  local old = seen:get("b" .. req.path)
  if old then return old end
  local id = orders:incr("id")
  seen:set("b" .. req.path, { id = id }, 3600) -- WARN keeps the result in the dict "seen"
  return { id = id }
end)
app:get("/cache", function(req)
  local page = pages:get(req.path)
  if page then return page end
  stats:incr("misses")
  pages:set(req.path, "page", 60)
  return "page"
end)
app:get("/right", function(req)
  if not seen:add("c" .. req.path, "pending", 60) then return 409 end
  db:exec("insert into o values(1)")
  seen:set("c" .. req.path, { id = 1 }, 3600)
  return { id = 1 }
end)""")

    def test_a_limit_that_only_one_request_meets(self):
        self.check("""
local d = ls.dict("d")
app:get("/a", function()
  if d:incr("a") == 10 then return 429 end -- WARN only the request with this number is refused, and those after it pass: write >=
  return 204
end)
app:get("/b", function(_, res)
  local n = d:incr("b", 1, 0, 60)
  if n == 3 then -- WARN only the request with this number is refused
    return res:status(429)
  end
  return 204
end)
app:get("/c", function()
  if d:incr("c", 1, 60) > 1000 then return 429 end -- WARN the third argument of incr is the number that it begins with, .* write incr\\(key, 1, 0, 60\\)
  return 204
end)
app:get("/right", function()
  if d:incr("d") == 1 then return 204 end
  if d:incr("f", 1, 0, 60) > 10 then return 409 end
  return 204
end)""")

    def test_a_status_without_return(self):
        self.check("""
app:get("/a", function(req, res)
  if not req.query.user then res:status(401) end -- WARN sets the status 401 and continues: write return res:status\\(401\\)
  return "SECRET"
end)
app:get("/b", function(req, res)
  local row = req.query.row
  if not row then
    res:status(404) -- WARN sets the status 404 and continues
  end
  return { row = row }
end)
app:use("/c", function(req, res, next)
  if not req.query.user then res:status(403) end -- WARN sets the status 403 and continues
  next()
end)
app:get("/c", function() return 204 end)
app:get("/right", function(req, res)
  if req.query.x then return res:status(403) end
  if not req.query.y then
    res:status(404)
    return "not here"
  end
  if not req.query.z then res:status(404) return "no" end
  return "ok"
end)
app:get("/described", function(req, res)
  local errors = req.query.y and {} or { "y" }
  if errors[1] then res:status(409) end
  return { errors = errors }
end)""")

    def test_secrets_that_each_state_draws(self):
        self.check("""
local secret = ls.crypto.token() -- WARN each Lua state draws a value of its own, and another one after each reload: .* in an environment variable, or ls.dict\\(.*\\):add
local keys = ls.dict("keys")
local first = ls.crypto.token()
keys:add("secret", first)
local kept, instance = keys.secret, ls.crypto.uuid() -- of each state
keys:add("other", ls.crypto.token())
app:get("/", function() return ls.crypto.hmac("sha256", secret, kept .. keys.other .. instance) end)""")

    def test_one_state_is_no_lock(self):
        """A task that waits between the look at a variable and its change lets the others in."""
        self.check("""
ls.config { states = 1 }
local stock, users, count, hits = 10, {}, 0, 0
app:get("/a", function()
  if stock <= 0 then return 409 end
  ls.sleep(0.001)
  stock = stock - 1 -- WARN changes stock after a wait: other requests run in between, also with states = 1
  return 204
end)
app:get("/b", function()
  local n = count
  ls.sleep(0.001)
  count = n + 1 -- WARN changes count after a wait
  return 204
end)
app:get("/right", function()
  ls.sleep(0.001)
  hits = hits + 1
  if not users.a then users.a = true end
  ls.sleep(0.001)
  return 204
end)""")

    def test_a_put_that_changes_nothing(self):
        self.check("""
local db = ls.sqlite("put.db")
db:migrate { "create table t(id integer primary key, n); insert into t values(1, 1)" }
app:put("/a", function()
  db:update("t", { n = 2 }, { id = 9 }) -- WARN PUT /a has changed no row, and its status is 204: .* == 0 then return 404 end
  return 204
end)
app:patch("/b", function()
  db:exec("update t set n = 2 where id = 9") -- WARN PATCH /b has changed no row, and its status is 200
  return { n = 2 }
end)
app:put("/right", function()
  db:exec("update t set n = 2 where id = 1")
  if db:update("t", { n = 2 }, { id = 9 }) == 0 then return 404 end
  return 204
end)
app:put("/other", function()
  db:exec("update t set n = 2 where id = 1")
  db:exec("update t set n = 3 where n = 9")
  return 204
end)
app:put("/used", function(_, _, next) db:exec("update t set n = 3 where n = 9") next() end, function() return 204 end)
app:put("/none", function()
  db:update("t", { n = 2 }, { id = 9 })
  return 404
end)
app:post("/cleanup", function()
  db:exec("update t set n = 2 where id = 9")
  return 204
end)""")

    def test_a_password_that_has_no_hash(self):
        self.check("""
local users = ls.dict("users")
app:get("/a", function()
  users:set("ann", { hash = ls.crypto.password.hash("") }) -- WARN ls.crypto.password.hash has returned nil: the password is empty
  return 204
end)
app:get("/b", function()
  local hash = ls.crypto.password.hash(("x"):rep(2000)) -- WARN ls.crypto.password.hash has returned nil: the password has more than
  users:set("bob", { hash = hash })
  return 204
end)
app:get("/right", function()
  local hash, message = ls.crypto.password.hash("")
  if not hash then return 409, message end
  return 204
end)""")

    def test_what_is_right(self):
        """An optimistic lock by a version, and a transaction that has only read."""
        self.check("""
local db = ls.sqlite("right.db")
db:migrate { "create table t(id integer primary key, text, version integer not null); insert into t values(1, 'a', 1)" }
app:get("/lock", function()
  local row = db:one("select * from t where id = 1")
  if db:exec("update t set text = ?, version = version + 1 where id = ? and version = ?", "b", 1, row.version).changes == 0 then return 409 end
  row = db:one("select * from t where id = 1")
  if db:update("t", { text = "c", version = row.version + 1 }, { id = 1, version = row.version }) == 0 then return 409 end
  return 204
end)
app:get("/read", function()
  return db:transaction(function(tx)
    if not tx:one("select 1 as x from t where id = 9") then return 404, "nothing here" end
  end)
end)""")
