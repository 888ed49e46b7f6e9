-- Bodies of multipart/form-data: fields, malformed bodies, limits, and bodies that are cut or changed at any byte.
local check = require "check"
local multipart = require "luaserve.multipart"

local tests = {}

local function part(head, data) return "--b\r\nContent-Disposition: form-data; " .. head .. "\r\n\r\n" .. data .. "\r\n" end

local function fields(body, boundary, lists)
  return multipart.fields(body, "multipart/form-data; boundary=" .. (boundary or "b"), lists)
end

function tests.bodies()
  for _, case in ipairs {
    { "--b--", {} }, { "--b--\r\n", {} }, { "preamble\r\n--b-- \t\r\nepilogue --b", {} },
    { part("name=a", "1") .. "--b--\r\n", { a = "1" } },
    { part('name="a b"', "") .. part("NAME=c", "x\r\ny") .. "--b--", { ["a b"] = "", c = "x\r\ny" } },
    { "--bb\r\n--b \t\r\nContent-disposition:form-data;name=a\r\n\r\n\0\255\r\n--b--", { a = "\0\255" } },
    { part("name=a", "1") .. part("name=a", "2") .. "--b--", { a = "1" } },
    -- Lines that begin like the delimiter, and data without a line break of their own.
    { part("name=a", "\r\n--bc\r\n--b-\r\n--b x") .. "--b--", { a = "\r\n--bc\r\n--b-\r\n--b x" } },
    { "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n--b--", { a = "" } },
    -- Names of browsers and of curl.
    { part('name="a%22b%0D%0Ac"', "1") .. part('name="d\\"e\\\\f"', "2") .. part('name="100%25"', "3") .. "--b--",
      { ['a"b\r\nc'] = "1", ['d"e\\f'] = "2", ["100%25"] = "3" } },
    -- Files, also one that the user has not chosen.
    { part('name="f"; filename="C:\\a\\b"', "file") .. part('name=g; filename=""', "") .. part("name=a", "1")
      .. part("name=h; filename*=UTF-8''x", "y") .. "--b--", { a = "1" } },
    { "--b\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=a\r\nX: y\r\n\r\n1\r\n--b--", { a = "1" } },
  } do
    check.equal({ case[1], (fields(case[1])) }, { case[1], case[2] })
  end
  local body = part("name=a", "1") .. part("name=b", "2") .. part("name=a", "3") .. "--b--"
  local lists = {}
  local got = fields(body, nil, lists)
  check.equal(got, { a = { "1", "3" }, b = { "2" } })
  check.equal(getmetatable(got) == lists, true)
end

function tests.malformed_bodies()
  for _, case in ipairs {
    { "there is no boundary", "" }, { "there is no boundary", "--c--" }, { "there is no boundary", "x--b--" },
    { "part 1 does not end", part("name=a", "1") }, { "part 1 does not end", part("name=a", "1") .. "--b" },
    { "part 1 does not end", part("name=a", "1") .. "--b-" }, { "part 1 does not end", part("name=a", "1") .. "--b--x" },
    { "the head of part 1 does not end", "--b\r\n" }, { "the head of part 1 does not end", "--b\r\nA: b\r\n--b--" },
    { "part 1 has no valid", "--b\r\n\r\n1\r\n--b\r\n\r\n--b--" },
    { "part 1 has no valid", "--b\r\nA: b\r\n\r\n\r\n--b--" },
    { "part 1 has no valid", part("", "") .. "--b--" }, { "part 1 has no valid", part("name", "") .. "--b--" },
    { "part 1 has no valid", part('name="a', "") .. "--b--" },
    { "part 1 has no valid", part("name=a; name=b", "") .. "--b--" },
    { "part 1 has no valid", part('name="a" x', "") .. "--b--" },
    { "part 1 has no valid", part("name=a\r\nno colon", "") .. "--b--" },
    { "part 1 has no valid", part("name=a\r\nContent-Disposition: form-data; name=b", "") .. "--b--" },
    { "part 1 has no valid", "--b\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--b--" },
    { "part 2 has no valid", part("name=a", "1") .. "--b\r\n\r\n\r\n\r\n--b--" },
    { "the head of part 1 does not end within 16384 bytes", part("name=" .. ("a"):rep(16384), "") .. "--b--" },
    { "it has more than 1000 parts", part("name=a", "1"):rep(1001) .. "--b--" },
  } do
    local got, message = fields(case[2])
    local start = "the multipart body is malformed: " .. case[1]
    check.equal({ case[2], got, message:sub(1, #start) }, { case[2], nil, start })
  end
  check.equal(fields(part("name=a", "1"):rep(1000) .. "--b--"), { a = "1" })
  check.equal(fields(part("name=" .. ("a"):rep(16000), "") .. "--b--"), { [("a"):rep(16000)] = "" })
end

function tests.boundaries()
  for text, valid in pairs {
    ["x"] = true, [("x"):rep(70)] = true, [("x"):rep(71)] = false, ['"a b"'] = true, ['"a "'] = false, ['""'] = false,
    [""] = false, ["'()+_,-./:=?"] = false, ['"\'()+_,-./:=?"'] = true, ["----WebKitFormBoundaryAbC123"] = true,
    ['"a\\"b"'] = false, ["a b"] = false,
  } do
    local boundary = text:match('^"(.*)"$') or text
    local got = multipart.fields("--" .. boundary .. "--", "multipart/form-data; charset=x; BOUNDARY=" .. text)
    check.equal({ text, got ~= nil }, { text, valid })
  end
  check.equal((multipart.fields("--b--", "multipart/form-data")), nil)
  check.equal((multipart.fields("--b--", "multipart/form-data; boundary=b; boundary=b")), nil)
end

-- A body that ends at any byte, or has another byte anywhere, gives fields or a message, never an error.
function tests.cut_and_changed_bodies()
  local body = "x\r\n" .. part('name="a"', "1\r\n--c") .. part('name=f; filename="g"', "\r\n\r\n") .. part("name=b", "")
    .. "--b--\r\n"
  check.equal(fields(body), { a = "1\r\n--c", b = "" })
  for n = 0, #body - 3 do check.equal({ n, (fields(body:sub(1, n))) }, { n, nil }) end
  for n = 1, #body do
    for _, byte in ipairs { "\0", "\r", "\n", "-", '"', ";", "\\", " ", "b", ":" } do
      local got, message = fields(body:sub(1, n - 1) .. byte .. body:sub(n + 1))
      check.equal({ n, byte, type(got or message) }, { n, byte, got and "table" or "string" })
    end
  end
end

-- Bodies that are full of almost-delimiters are read in linear time.
function tests.hostile_bodies()
  local began = os.clock()
  for _, text in ipairs { "\r\n--bx", "\r\n--b-", "\r\n--b ", "\r\n\r\n", "\r\n--", "--b\r\n" } do
    fields(text:rep(200000))
    fields(part("name=a", text:rep(200000)) .. "--b--")
    fields("--b\r\nContent-Disposition: form-data; " .. text:rep(3000) .. "\r\n\r\n\r\n--b--")
  end
  check.equal(os.clock() - began < 20, true)
end

return tests
