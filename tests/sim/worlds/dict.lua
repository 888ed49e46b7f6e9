-- dict.lua - dicts with a file, over several lives: writers, a counter, queues; crashes, full disks, reloads. Judges: the
-- server starts after each crash; what was answered is there, whole, and nothing that nobody wrote; the last value of a
-- writer is its last one; a sum that was answered is given once, and the next one is larger; lists keep the order of each
-- writer, lose nothing and double nothing; dicts without `sync` lose the end of their changes and nothing else.
local ls, sim, lives = require "luaserve", sim, require "lib.lives"
local text_of = lives.text_of
sim.expect "cannot be written to its file"
sim.expect "changes of"

if sim.side == "server" then
  lives.load(40)
  local app, strict, loose = ls.app(), { file = "/sim/strict.db", sync = true }, { file = "/sim/loose.db" }
  local texts, counts, lists = ls.dict("texts", strict), ls.dict("counts", strict), ls.dict("lists", strict)
  local first, second = ls.dict("first", loose), ls.dict("second", loose)

  local function post(path, fn) lives.post(app, path, fn) end
  post("/text/:key/:id", function(p)
    local ok, reason = texts:set(p.id, text_of(p.id))
    if not ok then return nil, reason end
    return texts:set("last " .. p.key, p.id)
  end)
  post("/incr/:key", function(p) return counts:incr(p.key) end)
  post("/push/:key/:id", function(p) return lists:rpush(p.key, p.id) end)
  post("/pop/:key", function(p)
    local id, reason = lists:lpop(p.key)
    if reason then return nil, reason end
    return id or "none"
  end)
  post("/loose/:key/:id", function(p)
    assert(first:set(p.key, p.id))
    return second:set(p.key, p.id)
  end)
  app:get("/all", function()
    local all = { texts = {}, counts = {}, lists = {}, first = {}, second = {} }
    for name, to in pairs(all) do
      for key, value in pairs(ls.dict(name)) do to[key] = name == "texts" and value == text_of(key) or value end -- true: as it was stored
    end
    return ls.json.encode(all)
  end)
  return lives.listen(app)
end

local function post(path) return lives.ask("POST", path) end
local function is_noted(kind, key) return sim.noted(kind .. " " .. key) end
local function note(kind, key, value) sim.note(kind .. " " .. key, value or "") end

local function judge_lists(lists)
  local there, lost = {}, 0
  for key, list in pairs(lists) do
    local last = {}
    for _, id in ipairs(list) do
      local writer, number = id:match "^(.-)%.(%d+)$"
      if there[id] then sim.fail(id .. " is twice in the list " .. key) end
      if is_noted("popped", id) then sim.fail(id .. " was popped, and is in the list " .. key) end
      if not is_noted("pushing", id) then sim.fail(id .. " was never pushed into " .. key) end
      if last[writer] and last[writer] > tonumber(number) and is_noted("pushed", id) and is_noted("pushed", writer .. "." .. last[writer]) then
        sim.fail(id .. " is behind a later one in the list " .. key)
      end
      there[id], last[writer] = true, tonumber(number)
    end
  end
  for _, entry in ipairs(sim.noted_all "pushed ") do
    local id = entry[1]:sub(8)
    if not there[id] and not is_noted("popped", id) then
      lost = lost + 1
      if entry[2] == "kept" or lost > #sim.noted_all "pop " - #sim.noted_all "popped " then sim.fail(id .. " was pushed, and is lost") end
    end
  end
end

local function judge_all() -- while no request runs
  local res = lives.look "/all"
  for _, entry in ipairs(sim.noted_all "text ") do
    local id = entry[1]:sub(6)
    if res.texts[id] == nil then sim.fail("the text " .. id .. " was stored, and is lost") end
  end
  for id, text in pairs(res.texts) do
    if id:find "^last " then
      local acknowledged = sim.noted("lasting " .. id:sub(6))
      if text ~= acknowledged and is_noted("text", text) then
        sim.fail(id .. " is " .. text .. ", though " .. tostring(acknowledged) .. " was stored later")
      end
    elseif text ~= true or not is_noted("writing", id) then
      sim.fail("the text " .. id .. " is not what was stored: " .. tostring(text):sub(1, 50))
    end
  end
  for _, entry in ipairs(sim.noted_all "sum ") do
    local sum = res.counts[entry[1]:sub(5)]
    if not sum or sum < tonumber(entry[2]) then sim.fail(entry[1] .. " " .. entry[2] .. " was given, and now it is " .. tostring(sum)) end
  end
  judge_lists(res.lists)
  if sim.noted "cannot be written to its file" then return end -- each dict tries again when it can
  for _, entry in ipairs(sim.noted_all "last loose ") do -- `first` was set before `second` by each request: it is one ahead at most
    local key = entry[1]:sub(12)
    local id, behind = res.first[key], res.second[key]
    local before = id and sim.noted("loosely " .. id)
    while before ~= behind and is_noted("open", before or "") do before = sim.noted("loosely " .. before) end -- it may not have run
    if (id or behind) and id ~= behind and before ~= "" and before ~= behind and not is_noted("open", behind or "") and not is_noted("open", id or "") then
      sim.fail("`first` of " .. key .. " is " .. tostring(id) .. ", `second` " .. tostring(behind) .. ", and before it was " .. tostring(before))
    end
  end
end

lives.run(5, 30, {
  function(writer, id)
    note("writing", id)
    if not post("/text/" .. writer .. "/" .. id) then return end
    note("text", id)
    note("lasting", tostring(writer), id)
  end,
  function()
    local key = "c" .. sim.random(2)
    lives.rise(key, "/incr/" .. key)
  end,
  function(_, id)
    local key = sim.random(2) == 1 and "kept" or "queue"
    note("pushing", id)
    if post("/push/" .. key .. "/" .. id) then note("pushed", id, key) end
  end,
  function(_, id)
    note("pop", id)
    local popped = post "/pop/queue"
    if not popped then return end
    if popped == "none" then note("popped", "none " .. id) return end
    if is_noted("popped", popped) then sim.fail(popped .. " was popped twice") end
    note("popped", popped)
  end,
  function(writer, id)
    local key = "last loose " .. writer
    local before = sim.noted(key) or ""
    note("loosely", id, before:find("^" .. sim.life .. ":") and before or "")
    sim.note(key, id)
    if not post("/loose/" .. writer .. "/" .. id) then note("open", id) end
  end,
}, judge_all)
