-- store.lua - the data of the site: sessions, accounts, notes, files and mails, in dicts. They survive a reload and end with
-- the server, because the luaserve that made this site has no SQLite.
--
-- The functions raise when a dict is full. What a user has too many of is refused: nil and a message.

local ls = require "luaserve"

local ENTRIES_MAX = 100 -- notes, and files, of an account

local store = { folder = ls.data .. (ls.env "LUASERVE_ENV" == "test" and "/data/test" or "/data") }
assert(ls.file.mkdir(store.folder .. "/files", { parents = true }))

store.sessions, store.tokens = ls.dict("sessions"), ls.dict("tokens")
local users, ids = ls.dict("users"), ls.dict("ids") -- an account by its name; the numbers that were given last
local notes, files = ls.dict("notes", { size = "64m" }), ls.dict("files") -- a list for each user, the newest first

-- In place of ls.queue, which needs a database: a mail that is not sent when the server stops is lost.
local send_mail
store.mails = {
  run = function(_, fn) send_mail = fn end,
  push = function(_, data) ls.spawn(send_mail, { data = data }) end,
}

-- add_user(name, hash of the password, mail or nil) -> whether the name was free
function store.add_user(name, hash, mail)
  local added, message, code = users:add(name, { id = ids:incr("user"), name = name, hash = hash, mail = mail })
  return code ~= "EEXIST" and assert(added, message)
end

function store.set_hash(name, hash)
  users:update(name, function(user)
    user.hash = hash
    return user
  end)
end

-- user(name) -> { id, name, hash, mail } | nil
function store.user(name) return users:get(name) end

local function add(dict, user, entry)
  local full
  dict:update(user, function(list) -- runs again if another request was faster
    list = list or {}
    full = #list >= ENTRIES_MAX
    if not full then table.insert(list, 1, entry) end
    return list
  end)
  if not full then return true end
  return nil, "You have " .. ENTRIES_MAX .. " already. Please delete some."
end

local function find(list, id)
  for at, entry in ipairs(list) do
    if tostring(entry.id) == id then return entry, at end
  end
end

local function delete(dict, user, id)
  local found
  dict:update(user, function(list)
    local _, at = find(list or {}, id)
    found = at ~= nil
    if found then table.remove(list, at) end
    return list
  end)
  return found
end

-- The notes of a user, { id, title, text, time }, the newest first.
function store.notes(user) return notes:get(user) or {} end

function store.add_note(user, entry)
  entry.id = ids:incr("note")
  return add(notes, user, entry)
end

function store.delete_note(user, id) return delete(notes, user, id) end

-- The files of a user, { id, name, bytes, time }, the newest first.
function store.files(user) return files:get(user) or {} end

function store.file(user, id) return (find(store.files(user), id)) end

function store.add_file(user, entry) return add(files, user, entry) end

function store.delete_file(user, id) return delete(files, user, id) end

return store
