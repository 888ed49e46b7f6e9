-- store.lua - the data of the site: sessions, accounts, notes, files and mails, in the database data/site.db.
--
-- The functions raise when the database cannot be used. What a user has too many of is refused: nil and a message.

local ls = require "luaserve"

local ENTRIES_MAX = 100 -- notes, and files, of an account

-- Tests have a database of their own, in memory.
local test = ls.env "LUASERVE_ENV" == "test"
local store = { folder = ls.data .. (test and "/data/test" or "/data") }
assert(ls.file.mkdir(store.folder .. "/files", { parents = true }))

local db = ls.sqlite(test and ":memory:" or store.folder .. "/site.db")
db:migrate { -- add further ones at the end: each runs once
  [[create table user (id integer primary key, name text not null unique, hash text not null);
    create table note (id integer primary key, user integer not null references user, title text not null,
      text text not null, time integer not null);
    create index note_user on note(user);
    create table file (id text primary key, user integer not null references user, name text not null,
      bytes integer not null, time integer not null);
    create index file_user on file(user)]],
  "alter table user add column mail text",
}
local file = not test and store.folder .. "/site.db" or nil
store.sessions, store.tokens = ls.dict("sessions", { file = file }), ls.dict("tokens", { file = file })
store.mails = ls.queue("mails", { file = file, retries = 8 }) -- kept until the mail server has taken them

-- add_user(name, hash of the password, mail or nil) -> whether the name was free
function store.add_user(name, hash, mail)
  return db:exec("insert into user(name, hash, mail) values(?, ?, ?) on conflict do nothing", name, hash, mail).changes == 1
end

function store.set_hash(name, hash) db:exec("update user set hash = ? where name = ?", hash, name) end

-- user(name) -> { id, name, hash, mail } | nil
function store.user(name) return db:one("select * from user where name = ?", name) end

-- add(sql, user, entry) runs an insert that does nothing when the user has ENTRIES_MAX entries.
local function add(sql, user, entry)
  entry.user, entry.max = user, ENTRIES_MAX
  if db:exec(sql, entry).changes == 1 then return true end
  return nil, "You have " .. ENTRIES_MAX .. " already. Please delete some."
end

-- The notes of a user, { id, title, text, time }, the newest first.
function store.notes(user) return db:query("select * from note where user = ? order by id desc", user) end

function store.add_note(user, entry)
  return add([[insert into note(user, title, text, time) select :user, :title, :text, :time
    where (select count(*) from note where user = :user) < :max]], user, entry)
end

function store.delete_note(user, id)
  return db:exec("delete from note where user = ? and id = ?", user, id).changes == 1
end

-- The files of a user, { id, name, bytes, time }, the newest first.
function store.files(user)
  return db:query("select * from file where user = ? order by time desc, name", user)
end

function store.file(user, id) return db:one("select * from file where user = ? and id = ?", user, id) end

function store.add_file(user, entry)
  return add([[insert into file(id, user, name, bytes, time) select :id, :user, :name, :bytes, :time
    where (select count(*) from file where user = :user) < :max]], user, entry)
end

function store.delete_file(user, id)
  return db:exec("delete from file where user = ? and id = ?", user, id).changes == 1
end

return store
