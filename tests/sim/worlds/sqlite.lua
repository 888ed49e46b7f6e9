-- sqlite.lua - a database over several lives: transactions that wait, single writes that are committed together, backups;
-- crashes, full disks, reloads. Judges: after each crash the server starts and the database is whole; of the two rows of
-- a transaction there are both or none; what was answered is there, and nothing that nobody wrote; the sum of all
-- accounts never changes, for readers neither; a number that was answered is given once, and the next one is larger; a
-- backup that was answered is there, whole, with all that was answered before it.
local ls, sim = require "luaserve", sim
local at, timeout, lives, writers, requests, accounts, cents = "127.0.0.1:8082", 5, 4, 4, 30, 5, 100

local function text_of(id)
  return (id .. ","):rep(1 + #id * tonumber((id:match "%d+$")) % 400)
end

if sim.side == "server" then
  if sim.life > 1 and sim.life < lives and sim.count "load" == 1 and sim.random(3) == 1 then sim.crash(sim.random(60)) end
  local app, db = ls.app(), ls.sqlite("/sim/site.db", { readers = sim.life })
  db:migrate {
    "create table one(id text primary key, text text); create table two(id text primary key, text text)",
    "create table single(id text primary key, text text); create table number(n integer); insert into number values(0)",
    "create table account(name integer primary key, cents integer check (cents >= 0))",
    ("insert into account select value, %d from json_each('[1,2,3,4,5]')"):format(cents),
  }
  local function post(path, fn) -- fn returns what is written, or nil and a reason
    app:post(path, function(req)
      local body, failure = ls.try(fn, req.params.id, req.params.from, req.params.to)
      if body == nil then return failure and failure.code == "EINVAL" and 409 or 503 end
      return tostring(body)
    end)
  end
  post("/pair/:id", function(id)
    return db:transaction(function(tx)
      tx:exec("insert into one values(?, ?)", id, text_of(id))
      if sim.random(4) == 1 then ls.sleep(sim.random(30) / 1000) end
      tx:exec("insert into two values(?, ?)", id, text_of(id))
      if sim.random(10) == 1 then return false end
    end)
  end)
  post("/single/:id", function(id) return db:exec("insert into single values(?, ?)", id, text_of(id)).changes end)
  post("/number", function() return db:one("update number set n = n + 1 returning n").n end)
  post("/move/:from/:to", function(_, from, to)
    return db:transaction(function(tx)
      tx:exec("update account set cents = cents - 30 where name = ?", tonumber(from))
      return tx:exec("update account set cents = cents + 30 where name = ?", tonumber(to)).changes
    end)
  end)
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
  return ls.listen(at, app)
end

local function ask(method, path, patience) -- the body of an answer 200; nil: nobody knows what happened; false: refused
  local res = ls.fetch("http://" .. at .. path, { method = method, timeout = patience or timeout })
  if not res then return nil end
  local body = res:body()
  if res.status == 409 then return false end
  if res.status ~= 200 and res.status ~= 503 then sim.fail(path .. ": " .. res.status .. " " .. tostring(body)) end
  return res.status == 200 and body or nil
end

local function judge(name, bound) -- bound: the notes since which what is answered may be absent
  local body
  repeat
    ls.sleep(0.1)
    body = ask("GET", "/all/" .. name, 100) -- an answer that is given up is still sent, and the end of the server waits for it
  until body
  local found = ls.json.decode(body)
  if found.whole ~= "ok" then sim.fail(name .. " is damaged: " .. found.whole) end
  for _, kind in ipairs { "one", "two", "single" } do
    for id, text in pairs(found[kind]) do
      if text ~= true or not sim.noted("writing " .. id) then sim.fail(name .. ", " .. kind .. ": nobody wrote " .. id .. ": " .. tostring(text):sub(1, 50)) end
      if kind ~= "single" and not found[kind == "one" and "two" or "one"][id] then sim.fail(name .. ": half of the transaction " .. id .. " is there") end
    end
  end
  for i, entry in ipairs(sim.noted_all "wrote ") do
    local id = entry[1]:sub(7)
    if i <= bound and not found[entry[2]][id] then sim.fail(name .. " has lost " .. id .. " of " .. entry[2]) end
    if entry[2] == "undone" and found.one[id] then sim.fail(name .. ": " .. id .. " was undone, and is there") end
  end
  return found.n
end

local function judge_all()
  local n = judge("site", math.huge)
  if n < tonumber(sim.noted "number" or 0) then sim.fail("the number " .. sim.noted "number" .. " was given, and now it is " .. n) end
  if sim.noted "backup" then judge("copy", tonumber(sim.noted "backup")) end
end

local kinds = {
  pair = function(id)
    sim.note("writing " .. id, "")
    local body = ask("POST", "/pair/" .. id)
    if body == "true" then sim.note("wrote " .. id, "one") end
  end,
  single = function(id)
    sim.note("writing " .. id, "")
    if ask("POST", "/single/" .. id) then sim.note("wrote " .. id, "single") end
  end,
  number = function()
    local before = tonumber(sim.noted "number" or 0)
    local n = tonumber(ask("POST", "/number"))
    if not n then return end
    if sim.noted("given " .. n) then sim.fail("the number " .. n .. " was given twice") end
    if n <= before then sim.fail("the number " .. n .. " after " .. before) end
    sim.note("given " .. n, "")
    if n > tonumber(sim.noted "number" or 0) then sim.note("number", tostring(n)) end
  end,
  move = function()
    ask("POST", "/move/" .. sim.random(accounts) .. "/" .. sim.random(accounts))
    local body = ask("GET", "/sum")
    local now = body and ls.json.decode(body)
    if now and (now.sum ~= accounts * cents or now.n ~= accounts) then sim.fail("the sum of all accounts is " .. now.sum) end
  end,
  backup = function(id) -- one after the other, else an older one may replace a newer one
    local wrote = #sim.noted_all "wrote "
    if sim.noted("backing up " .. sim.life) == "yes" or not id:find ":1%." then return end
    sim.note("backing up " .. sim.life, "yes")
    if not ask("POST", "/backup") then return end
    sim.note("backup", tostring(wrote))
    sim.note("backing up " .. sim.life, "no")
  end,
}
local names = { "pair", "single", "number", "move", "backup" }

ls.init(function()
  local left = writers
  judge_all()
  if sim.life < lives then
    if sim.random(2) == 1 then
      sim.crash(sim.random(sim.random(2000)))
    else
      local seconds = sim.random(sim.random(4000)) / 1000
      ls.spawn(function() ls.sleep(seconds) sim.crash() end)
    end
  end
  for w = 1, writers do
    ls.spawn(function()
      for r = 1, requests do
        if sim.random(5) == 1 then ls.sleep(sim.random(300) / 1000) end
        if sim.random(60) == 1 then sim.reload() end
        kinds[names[sim.random(#names)]](sim.life .. ":" .. w .. "." .. r)
      end
      left = left - 1
      if left > 0 then return end
      if sim.life < lives then sim.crash() end
      sim.calm()
      ls.sleep(timeout) -- no request runs any more
      judge_all()
      sim.done()
    end)
  end
end)
