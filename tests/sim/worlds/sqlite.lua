-- sqlite.lua - a database over several lives: transactions that wait, single writes that are committed together, backups;
-- crashes, full disks, reloads. Judges: after each crash the server starts and the database is whole; of the two rows of
-- a transaction there are both or none; what was answered is there, and nothing that nobody wrote; the sum of all
-- accounts never changes, for readers neither; a number that was answered is given once, and the next one is larger; a
-- backup that was answered is there, whole, with all that was answered before it.
local ls, sim, lives = require "luaserve", sim, require "lib.lives"
local accounts, cents, text_of = 5, 100, lives.text_of

if sim.side == "server" then
  lives.load(60)
  local app, db = ls.app(), ls.sqlite("/sim/site.db", { readers = sim.life })
  db:migrate {
    "create table one(id text primary key, text text); create table two(id text primary key, text text)",
    "create table single(id text primary key, text text); create table number(n integer); insert into number values(0)",
    "create table account(name integer primary key, cents integer check (cents >= 0))",
    ("insert into account select value, %d from json_each('[1,2,3,4,5]')"):format(cents),
  }
  local function post(path, fn) lives.post(app, path, fn) end
  post("/pair/:id", function(p)
    local id = p.id
    return db:transaction(function(tx)
      tx:exec("insert into one values(?, ?)", id, text_of(id))
      if sim.random(4) == 1 then ls.sleep(sim.random(30) / 1000) end
      tx:exec("insert into two values(?, ?)", id, text_of(id))
      if sim.random(10) == 1 then return false end
    end)
  end)
  post("/single/:id", function(p) return db:exec("insert into single values(?, ?)", p.id, text_of(p.id)).changes end)
  post("/number", function() return db:one("update number set n = n + 1 returning n").n end)
  post("/move/:from/:to", function(p)
    return db:transaction(function(tx)
      tx:exec("update account set cents = cents - 30 where name = ?", tonumber(p.from))
      return tx:exec("update account set cents = cents + 30 where name = ?", tonumber(p.to)).changes
    end)
  end)
  post("/checkpoint", function() return #db:query "pragma wal_checkpoint(truncate)" end)
  post("/backup", function() return db:backup "/sim/copy.db" end)
  local function all(name)
    local from = db
    if name == "copy" then -- looks at a copy of it: an open database must not be replaced
      local look = ("/sim/look-%d-%d.db"):format(sim.life, sim.count "look")
      local bytes, _, code = ls.file.read "/sim/copy.db"
      if code == "ENOENT" then sim.fail "a backup was answered, and there is none" end
      if not bytes or not ls.file.write(look, bytes) then return nil, { message = "try again" } end
      local opened, result = pcall(ls.sqlite, look)
      if not opened then return nil, { message = tostring(result) } end
      from = result
    end
    local found = { whole = from:one("pragma integrity_check").integrity_check, n = from:one("select n from number").n }
    for _, t in ipairs { "one", "two", "single" } do
      found[t] = {}
      for row in from:rows("select id, text from " .. t) do found[t][row.id] = row.text == text_of(row.id) or row.text end
    end
    return found
  end
  app:get("/sum", function() return ls.try(db.one, db, "select sum(cents) as sum, count(*) as n from account") or 503 end)
  app:get("/all/:name", function(req)
    local found, failure = ls.try(all, req.params.name)
    if not found and (failure.message:find "malformed" or failure.message:find "not a database") then sim.fail(req.params.name .. ": " .. failure.message) end
    return found or 503
  end)
  return lives.listen(app)
end

local function judge(name, bound) -- bound: the notes since which what is answered may be absent
  local found = lives.look("/all/" .. name)
  if found.whole ~= "ok" then sim.fail(name .. " is damaged: " .. found.whole) end
  for _, kind in ipairs { "one", "two", "single" } do
    for id, text in pairs(found[kind]) do
      if text ~= true or not sim.noted("writing " .. id) then sim.fail(name .. ", " .. kind .. ": nobody wrote " .. id .. ": " .. tostring(text):sub(1, 50)) end
      if kind ~= "single" and not found[kind == "one" and "two" or "one"][id] then sim.fail(name .. ": half of the transaction " .. id .. " is there") end
    end
  end
  for i, entry in ipairs(sim.noted_all "wrote ") do
    local id = entry[1]:sub(7)
    local undone = entry[2] == "undone"
    if undone and found.one[id] then sim.fail(name .. ": " .. id .. " was undone, and is there") end
    if i <= bound and not undone and not found[entry[2]][id] then sim.fail(name .. " has lost " .. id .. " of " .. entry[2]) end
  end
  return found.n
end

local function judge_all()
  local n = judge("site", math.huge)
  if n < tonumber(sim.noted "sum number" or 0) then sim.fail("the number " .. sim.noted "sum number" .. " was given, and now it is " .. n) end
  if sim.noted "backup" then judge("copy", tonumber(sim.noted "backup")) end
end

lives.run(4, 30, {
  function() lives.ask("POST", "/checkpoint") end,
  function(_, id)
    sim.note("writing " .. id, "")
    local body = lives.ask("POST", "/pair/" .. id)
    if body then sim.note("wrote " .. id, body == "true" and "one" or "undone") end
  end,
  function(_, id)
    sim.note("writing " .. id, "")
    if lives.ask("POST", "/single/" .. id) then sim.note("wrote " .. id, "single") end
  end,
  function() lives.rise("number", "/number") end,
  function()
    lives.ask("POST", "/move/" .. sim.random(accounts) .. "/" .. sim.random(accounts))
    local body = lives.ask("GET", "/sum")
    local now = body and ls.json.decode(body)
    if now and (now.sum ~= accounts * cents or now.n ~= accounts) then sim.fail("the sum of all accounts is " .. now.sum) end
  end,
  function(_, id) -- one after the other, else an older one may replace a newer one
    local wrote = #sim.noted_all "wrote "
    if sim.noted("backing up " .. sim.life) == "yes" or not id:find ":1%." then return end
    sim.note("backing up " .. sim.life, "yes")
    if not lives.ask("POST", "/backup") then return end
    sim.note("backup", tostring(wrote))
    sim.note("backing up " .. sim.life, "no")
  end,
}, judge_all)
