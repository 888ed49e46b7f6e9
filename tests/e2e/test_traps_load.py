"""Programs that work with one request by hand and fail silently under load, after a reload or with several states: `luaserve dev`
warns at each line with "-- WARN", and at no other."""
from harness.dev import DevSites


class Load(DevSites):
    def test_what_start_and_init_set_again(self):
        """A count that a new state, or a reload, sets back; not what nobody else changes."""
        self.check_lines("""
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
GET /
  counts:incr("n")
  counts:incr("started")
  other:incr("n")
  hits = hits + 1 -- WARN changes hits, of which each Lua state has its own copy
  seen[#seen + 1] = hits -- WARN changes seen
  batch = batch + 1
  return { n = version.at, base = base }""")

    def test_results_of_rows_that_are_always_true(self):
        self.check_lines("""
local db = ls.sqlite("rows.db")
db:migrate { "create table t(id integer primary key, n); insert into t values(1, 1)" }
app:get("/a", function() return db:delete("t", { id = 9 }) and 204 or 404 end) -- WARN db:delete returns a number, and 0 is true in Lua: write db:delete\\(...\\) > 0
app:get("/b", function() return db:update("t", { n = 1 }, { id = 1 }) and 204 or 404 end) -- WARN db:update returns a number
app:get("/c", function() return db:exec("update t set n = 1") and 204 or 404 end) -- WARN the condition db:exec.* is a table
GET /d
  local gone = db:delete("t", { id = 9 })
  if not gone then return 404 end -- WARN gone is the number that db:delete returns, and 0 is true in Lua: write gone == 0
GET /e
  local done = db:exec("delete from t where id = 9")
  return done and 204 or 404 -- WARN done is the table that exec returns, which is always true: look at its changes
GET /right
  local gone = db:delete("t", { id = 9 })
  if gone == 0 and db:delete("t", { id = 9 }) == 0 then return db:update("t", { n = 1 }, { id = 1 }) > 0 and 204 or 404 end
  return gone > 0 and 204 or 404""")

    def test_keys_of_requests_that_are_repeated(self):
        """The answer is kept after its effects: two requests with one key have both; a cache, which has none, is in order."""
        self.check_lines("""
local seen, orders, pages, stats = ls.dict("seen"), ls.dict("orders"), ls.dict("pages"), ls.dict("stats")
local db = ls.sqlite("orders.db")
db:migrate { "create table o(n)" }
GET /sql
  local old = seen:get("a" .. req.path)
  if old then return old end
  db:exec("insert into o values(1)")
  seen:set("a" .. req.path, { id = 1 }, 3600) -- WARN keeps the result in the dict "seen" after the effects .* use d:add\\(key, "pending", ttl\\) before them
  return { id = 1 }
GET /dict
  local old = seen:get("b" .. req.path)
  if old then return old end
  local id = orders:incr("id")
  seen:set("b" .. req.path, { id = id }, 3600) -- WARN keeps the result in the dict "seen"
  return { id = id }
GET /cache
  local page = pages:get(req.path)
  if page then return page end
  stats:incr("misses")
  pages:set(req.path, "page", 60)
  return "page"
GET /right
  if not seen:add("c" .. req.path, "pending", 60) then return 409 end
  db:exec("insert into o values(1)")
  seen:set("c" .. req.path, { id = 1 }, 3600)
  return { id = 1 }""")

    def test_a_limit_that_only_one_request_meets(self):
        self.check_lines("""
local d = ls.dict("d")
GET /a
  if d:incr("a") == 10 then return 429 end -- WARN only the request with this number is refused, and those after it pass: write >=
GET /b
  local n = d:incr("b", 1, 0, 60)
  if n == 3 then -- WARN only the request with this number is refused
    return res:status(429)
  end
GET /c
  if d:incr("c", 1, 60) > 1000 then return 429 end -- WARN the third argument of incr is the number that it begins with, .* write incr\\(key, 1, 0, 60\\)
GET /right
  if d:incr("d") == 1 then return 204 end
  if d:incr("f", 1, 0, 60) > 10 then return 409 end""")

    def test_a_status_without_return(self):
        self.check_lines("""
GET /a
  if not req.query.user then res:status(401) end -- WARN sets the status 401 and continues: write return res:status\\(401\\)
  return "SECRET"
GET /b
  local row = req.query.row
  if not row then
    res:status(404) -- WARN sets the status 404 and continues
  end
  return { row = row }
app:use("/c", function(req, res, next)
  if not req.query.user then res:status(403) end -- WARN sets the status 403 and continues
  next()
end)
app:get("/c", function() return 204 end)
GET /right
  if req.query.x then return res:status(403) end
  if not req.query.y then
    res:status(404)
    return "not here"
  end
  if not req.query.z then res:status(404) return "no" end
GET /described
  local errors = req.query.y and {} or { "y" }
  if errors[1] then res:status(409) end
  return { errors = errors }""")

    def test_secrets_that_each_state_draws(self):
        self.check_lines("""
local secret = ls.crypto.token() -- WARN each Lua state draws a value of its own, and another one after each reload: .* in an environment variable, or ls.dict\\(.*\\):add
local keys = ls.dict("keys")
local first = ls.crypto.token()
keys:add("secret", first)
local kept, instance = keys.secret, ls.crypto.uuid() -- of each state
keys:add("other", ls.crypto.token())
app:get("/", function() return ls.crypto.hmac("sha256", secret, kept .. keys.other .. instance) end)""")

    def test_one_state_is_no_lock(self):
        """A task that waits between the look at a variable and its change lets the others in."""
        self.check_lines("""
ls.config { states = 1 }
local stock, users, count, hits = 10, {}, 0, 0
GET /a
  if stock <= 0 then return 409 end
  ls.sleep(0.001)
  stock = stock - 1 -- WARN changes stock after a wait: other requests run in between, also with states = 1
GET /b
  local n = count
  ls.sleep(0.001)
  count = n + 1 -- WARN changes count after a wait
GET /right
  ls.sleep(0.001)
  hits = hits + 1
  if not users.a then users.a = true end
  ls.sleep(0.001)""")

    def test_a_put_that_changes_nothing(self):
        self.check_lines("""
local db = ls.sqlite("put.db")
db:migrate { "create table t(id integer primary key, n); insert into t values(1, 1)" }
PUT /a
  db:update("t", { n = 2 }, { id = 9 }) -- WARN PUT /a has changed no row, and its status is 204: .* == 0 then return 404 end
PATCH /b
  db:exec("update t set n = 2 where id = 9") -- WARN PATCH /b has changed no row, and its status is 200
  return { n = 2 }
POST /done/:id
  db:update("t", { n = 2 }, { id = 9 }) -- WARN POST /done/:id has changed no row
PUT /right
  db:exec("update t set n = 2 where id = 1")
  if db:update("t", { n = 2 }, { id = 9 }) == 0 then return 404 end
PUT /other
  db:exec("update t set n = 2 where id = 1")
  db:exec("update t set n = 3 where n = 9")
app:put("/used", function(_, _, next) db:exec("update t set n = 3 where n = 9") next() end, function() return 204 end)
PUT /none
  db:update("t", { n = 2 }, { id = 9 })
  return 404
POST /cleanup
  db:exec("update t set n = 2 where id = 9")""")

    def test_a_password_that_has_no_hash(self):
        self.check_lines("""
local users = ls.dict("users")
GET /a
  users:set("ann", { hash = ls.crypto.password.hash("") }) -- WARN ls.crypto.password.hash has returned nil: the password is empty
GET /b
  local hash = ls.crypto.password.hash(("x"):rep(2000)) -- WARN ls.crypto.password.hash has returned nil: the password has more than
  users:set("bob", { hash = hash })
GET /right
  local hash, message = ls.crypto.password.hash("")
  if not hash then return 409, message end""")

    def test_what_is_right(self):
        """An optimistic lock by a version, and a transaction that has only read."""
        self.check_lines("""
local db = ls.sqlite("right.db")
db:migrate { "create table t(id integer primary key, text, version integer not null); insert into t values(1, 'a', 1)" }
GET /lock
  local row = db:one("select * from t where id = 1")
  if db:exec("update t set text = ?, version = version + 1 where id = ? and version = ?", "b", 1, row.version).changes == 0 then return 409 end
  row = db:one("select * from t where id = 1")
  if db:update("t", { text = "c", version = row.version + 1 }, { id = 1, version = row.version }) == 0 then return 409 end
GET /read
  return db:transaction(function(tx)
    if not tx:one("select 1 as x from t where id = 9") then return 404, "nothing here" end
  end)""")
