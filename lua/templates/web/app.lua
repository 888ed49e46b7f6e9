-- app.lua - the pages: notes with a form, and files with an upload. Each account sees its own.

local ls = require "luaserve"
local csrf, secure_headers = require "luaserve.csrf", require "luaserve.secure_headers"
local accounts, store = require "accounts", require "store"

local FILE_BYTES_MAX, UPLOAD_BYTES_MAX = "20m", "100m" -- of one file; of all files of a request

local note = ls.check {
  title = { is = "string", max = 80, pattern = "%S", message = "Please give a title of at most 80 characters." },
  text = { is = "string?", max = 2000, message = "At most 2000 characters." },
}

local app = ls.app()
ls.templates("views", { globals = { date = function(time) return os.date("!%Y-%m-%d %H:%M", time) end } })

app:use(secure_headers {
  content_security_policy = "default-src 'self'; object-src 'none'; base-uri 'self'; frame-ancestors 'self'",
})
app:use(ls.session { store = store.sessions, max_age = 7 * 86400, login = { "user", "hash" } }) -- a week without a request
app:use(csrf()) -- refuses forms of other sites
accounts.add_routes(app)

-- ---- notes ------------------------------------------------------------------------------------------------------------

-- The page with the fields of the form, and what is wrong with them.
local function show_notes(req, res, form, errors)
  return res:render("notes.html", {
    title = "Notes", user = req.user, notes = store.notes(req.user.id), form = form, errors = errors,
  })
end

app:get("/", accounts.login, function(req, res) return show_notes(req, res, {}, {}) end)

app:post("/notes", accounts.login, function(req, res)
  local given, errors = req:form(note, { refuse = false })
  if errors then return show_notes(req, res:status(422), given, errors) end
  local added, message = store.add_note(req.user.id, { title = given.title, text = given.text or "", time = os.time() })
  if not added then return show_notes(req, res:status(422), given, { title = message }) end
  return res:redirect("/", 303) -- so that reloading the page does not send the form again
end)

app:post("/notes/:id/delete", accounts.login, function(req, res)
  if not store.delete_note(req.user.id, req.params.id) then return 404 end
  return res:redirect("/", 303)
end)

-- ---- files ------------------------------------------------------------------------------------------------------------

-- Where the bytes of a file are. Its name there is its id, a random text: that of the client may be anything.
local function path_of(id) return store.folder .. "/files/" .. id end

local function show_files(req, res, wrong)
  return res:render("files.html", {
    title = "Files", user = req.user, files = store.files(req.user.id), wrong = wrong,
  })
end

app:get("/files", accounts.login, function(req, res) return show_files(req, res) end)

app:post("/files", { max_body = UPLOAD_BYTES_MAX }, accounts.login, function(req, res)
  for part in req:parts() do
    if part.name == "file" and part.filename and part.filename ~= "" then
      if #part.filename > 255 then return show_files(req, res:status(422), "The name of the file is too long.") end
      local id = ls.crypto.token()
      local _, bytes = assert(part:save(path_of(id), FILE_BYTES_MAX)) -- keeps nothing of a file that does not arrive whole
      local file = { id = id, name = part.filename, bytes = bytes, time = os.time() }
      local added, message = store.add_file(req.user.id, file)
      if not added then
        ls.file.remove(path_of(id))
        return show_files(req, res:status(422), message)
      end
    end
  end
  return res:redirect("/files", 303)
end)

app:get("/files/:id", accounts.login, function(req, res)
  local file = store.file(req.user.id, req.params.id)
  -- `download`: browsers save the file and never show it, so that a page among the files cannot act for its visitor.
  if not file or not res:file(path_of(file.id), { download = file.name }) then return 404 end
end)

app:post("/files/:id/delete", accounts.login, function(req, res)
  if not store.delete_file(req.user.id, req.params.id) then return 404 end
  ls.file.remove(path_of(req.params.id))
  return res:redirect("/files", 303)
end)

-- ---- all else ---------------------------------------------------------------------------------------------------------

app:static("/public", "public", { max_age = 60 })
app:not_found(function(_, res) return res:status(404):render("message.html", { title = "Not found" }) end)
app:error(function(req, res) return res:status(500):render("message.html", { title = "An error", id = req.id }) end)

return app
