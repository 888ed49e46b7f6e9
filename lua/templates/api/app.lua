-- app.lua - the items of the API.
--
--   GET    /items?done=&limit=&after=   { items = [...], next = the path of the next page }   200, 400
--   POST   /items      { title [, done] }                                                     201, 422
--   GET    /items/:id                                                                         200, 404
--   PATCH  /items/:id  { title or done or both }                                              200, 404, 422
--   DELETE /items/:id                                                                         204, 404
--
-- Each request needs the token: Authorization: Bearer TOKEN. What is not valid is answered with { error, fields }.

local ls = require "luaserve"
local bearer_auth, rate_limit = require "luaserve.bearer_auth", require "luaserve.rate_limit"
local store = require "store"

local LIMIT_MAX = 100 -- items of a page

local title = { is = "string", min = 1, max = 200, pattern = "%S" }
local new_item = ls.check({ title = title, done = { is = "boolean", default = false } }, { unknown = "refuse" })
local change = ls.check({ title = { is = title, optional = true }, done = "boolean?" }, { unknown = "refuse" })
local page = ls.check({
  limit = { is = "integer", min = 1, max = LIMIT_MAX, default = 20 },
  after = { is = "integer", min = 0, default = 0 }, -- the id of the last item of the page before
  done = "boolean?",
}, { convert = true, unknown = "refuse" })

-- Without API_TOKEN the server does not start, unless it is that of a developer or of the tests.
local is_production = ls.env "LUASERVE_ENV" == "production"
local token = is_production and ls.env "API_TOKEN" or "token-for-development"

local app = ls.app()
app:use(rate_limit { limit = 600, per = 60 }) -- of an address; before the token, which it makes hard to guess
app:use(bearer_auth { tokens = { [token] = "owner" } })

-- The id in the path; 0, which no item has, if it has other characters than digits.
local function id_of(req) return math.tointeger(req.params.id:match "^%d+$") or 0 end

-- What a handler returns for an item, or for nil.
local function found(item)
  if item then return item end
  return 404, { error = "not found" }
end

app:get("/items", function(req)
  local query, errors = page(req.query_all)
  if errors then return 400, { error = "invalid query", fields = errors } end
  local items = store.items(query.after, query.limit + 1, query.done) -- one more: is there a next page?
  local following
  if #items > query.limit then
    items[#items] = nil
    query.after = items[#items].id
    following = "/items?" .. ls.url.query(query)
  end
  return { items = items, next = following }
end)

app:post("/items", function(req)
  local item = store.add(req:json(new_item)) -- what is not valid is answered with 422
  return 201, item, { Location = "/items/" .. item.id }
end)

app:get("/items/:id", function(req) return found(store.item(id_of(req))) end)

app:patch("/items/:id", function(req) return found(store.change(id_of(req), req:json(change))) end)

app:delete("/items/:id", function(req) return found(store.delete(id_of(req)) and 204) end)

app:not_found(function() return found(nil) end)
app:error(function(req) return { error = "internal error", id = req.id } end) -- the log has the reason, with this id

return app
