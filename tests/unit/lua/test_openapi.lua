-- app:openapi and the descriptions of routes: what is refused, at the line of the site. tests/e2e/test_openapi.py has the documents.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"
local router = require "luaserve.router"

local tests = {}

local rows = {
  { [[app:get("/", { sumary = "x" }, fn)]], [=[did you mean 'summary']=] },
  { [[app:get("/", { summary = 5 }, fn)]], [=[app:get: summary must be a string; got 5]=] },
  { [[app:get("/", { deprecated = "yes" }, fn)]], [=[deprecated must be true or false; got "yes"]=] },
  { [[app:get("/", { tags = "items" }, fn)]], [=[tags must be a list of names, such as { "items" }; got "items"]=] },
  { [[app:get("/", { json = { a = "string" } }, fn)]], [=[a GET request has no body: json belongs to another method; write query for parameters]=] },
  { [[app:post("/", { json = { a = "string" }, form = { a = "string" } }, fn)]], [=[give one of form and json]=] },
  { [[app:post("/", { json = { a = "strin" } }, fn)]], [=[app:post: json: a: unknown type "strin"; did you mean 'string'?]=] },
  { [[app:post("/", { json = "string" }, fn)]], [=[json must be a table of fields, or of a list]=] },
  { [[app:post("/", { form = { a = { b = "string" } } }, fn)]], [=[app:post: form: a: there are no fields within fields]=] },
  { [[app:get("/:id", { params = { di = "integer" } }, fn)]], [=[params: "di" is no parameter of the path; did you mean 'id'?]=] },
  { [[app:get("/", { null = true }, fn)]], [=[null belongs to json]=] },
  { [[app:get("/", { query = 5 }, fn)]], [=[app:get: query: a schema is a table]=] },
  { [[app:post("/", { parts = { f = "fil" } }, fn)]], [=[parts: f: unknown type "fil"]=] },
  { [[app:get("/", { responses = { [20] = "x" } }, fn)]], [=[a status is a number such as 404, "4XX" or "default"; got 20]=] },
  { [[app:get("/", { responses = { [200] = { name = "string" } } }, fn)]], [=[responses[200]: unknown option "name"; a schema is written as { json = schema }]=] },
  { [[app:get("/", { security = { "login" } }, fn) app:openapi("/o.json") ls.listen(0, app)]], [=[security: app:openapi has no scheme "login"]=] },
  { [[app:get("/a", { id = "x" }, fn) app:get("/b", { id = "x" }, fn) app:openapi("/o.json") ls.listen(0, app)]], [=[the id "x" is already that of the route at site.lua:2]=] },
  { [[app:get("/a", { security = { "bearerAuth" } }, fn) app:openapi("/o.json") ls.listen(0, app)]], [=[the route does not run in luaserve.bearer_auth]=] },
  { [[app:use("/a", bearer) app:get("/a", { security = false }, fn) app:openapi("/o.json") ls.listen(0, app)]], [=[asks for bearerAuth: leave the option out]=] },
  { [[app:use("/a/:n/c", bearer) app:get("/a/:n/c", { security = {} }, fn) app:openapi("/o.json") ls.listen(0, app)]], [=[asks for bearerAuth]=] },
  { [[app:get("/a-b", fn) app:get("/a_b", fn) app:openapi("/o.json") ls.listen(0, app)]], [=[the id "get_a_b" is already that of the route at site.lua:2; give one]=] },
  { [[app:openapi("/o.json", { schemas = { InvalidFields = ls.check { a = "string" } } })]], [=[InvalidFields is the schema of the response 422]=] },
  { [[app:patch("/", { json = { a = { b = { is = "string", default = "x" } } } }, fn)]], [=[app:patch: json: a.b: in a PATCH the default]=] },
  { [[app:route("PATCH", "/", { form = { a = { is = "string", default = "x" } } }, fn)]], [=[form: a: in a PATCH the default]=] },
  { [[app:get("/", { responses = {} }, fn)]], [=[responses must have a status]=] },
  { [[app:get("/", { responses = { ["200"] = "a", [200] = "b" } }, fn)]], [=[the status 200 is there twice]=] },
  { [[app:get("/", { responses = { [200] = { headers = { ["a b"] = "string" } } } }, fn)]], [=[responses[200]: headers: "a b" is no name of a header field]=] },
  { [[app:get("/", { headers = { ["a b"] = "string" } }, fn)]], [=[headers: "a b" is no name of a header field]=] },
  { [[app:get("/", { id = "" }, fn)]], [=[id must be a name of letters, digits and _, such as "getItem"; got ""]=] },
  { [[app:get("/", { id = "get it" }, fn)]], [=[got "get it"]=] },
  { [[app:get("/:id", { params = { id = "integer?" } }, fn)]], [=[params: id: a parameter of the path is never absent]=] },
  { [[app:get("/:id", { params = { id = { is = "integer", default = 1 } } }, fn)]], [=[params: id: a parameter of the path is never absent]=] },
  { [[app:get("/a", { params = { di = "integer" } }, fn)]], [=[params: "di" is no parameter of the path; it has none]=] },
  { [[app:get("/", { query = { a = "table" } }, fn)]], [=[query: a: a text is never a "table"]=] },
  { [[app:any("/", { summary = "x" }, fn)]], [=[app:openapi does not show a route for any method: summary has no effect]=] },
  { [[app:route("PROPFIND", "/", { responses = { [207] = "x" } }, fn)]], [=[a route for PROPFIND: responses has no effect]=] },
  { [[app:post("/", { parts = { f = "files" } }, fn)]], [=[parts: f: a file is written as "file" or "file?", several as { "file" }]=] },
  { [[app:post("/", { parts = { f = { is = "file", max = 5 } } }, fn)]], [=[parts: f: a file is written as "file"]=] },
  { [[app:openapi("/docs")]], [=[must end in .json; write app:openapi("/docs.json", { page = "/docs" }); got "/docs"]=] },
  { [[app:openapi("/o.yaml")]], [=[must end in .json; write app:openapi("/o.json", { page = "/o" })]=] },
  { [[app:openapi("/o.json", { titel = "x" })]], [=[did you mean 'title']=] },
  { [[app:openapi("/o/:id")]], [=[the path must not have parameters]=] },
  { [[app:openapi()]], [=[the path must be a string such as "/openapi.json"]=] },
  { [[app:openapi("/o.json", { schemas = { A = { a = "string" } } })]], [=[with a check of ls.check]=] },
  { [[app:openapi("/o.json", { schemes = { l = { type = "cookie" } } })]], [=[schemes.l: type must be one of apiKey, http, mutualTLS, oauth2, openIdConnect; got "cookie"]=] },
  { [[app:openapi("/o.json", { schemes = { l = { type = "apiKey", name = "sid" } } })]], [=[schemes.l: a scheme of the type apiKey needs in]=] },
  { [[app:openapi("/o.json", { page = 5 })]], [=[page must be a path or false; got 5]=] },
  { [[app:openapi("/o.json", { servers = { 5 } })]], [=[servers must be a table of URLs; got 5]=] },
  { [[app:openapi("/o.json", { auth = "x" })]], [=[auth must be middleware]=] },
  { [[app:openapi("/o.json") app:openapi("/o.json")]], [=[already defined at]=] },
}

function tests.wrong_options_are_named_at_the_line_of_the_site()
  for _, name in ipairs { "url_encode", "status_text", "kept_text", "keep_text" } do core[name] = core[name] or tostring end
  local bearer = router.guard(function() return 401 end, { name = "bearerAuth", type = "http", scheme = "bearer" })
  for _, row in ipairs(rows) do
    local site = assert(load("local ls, app, fn, bearer = ...\n" .. row[1], "@site.lua"))
    check.raises({ "site.lua:2", row[2] }, function() site(ls, ls.app(), function() end, bearer) end)
  end
end

return tests
