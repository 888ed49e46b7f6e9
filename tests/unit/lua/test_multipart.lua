-- luacheck: ignore 631
-- Bodies of multipart/form-data: fields, malformed bodies, limits, and bodies that are cut or changed at any byte.
local check = require "check"
local core = require "fake_core"
local multipart = require "luaserve.multipart"

local tests = {}

local function part(head, data) return "--b\r\nContent-Disposition: form-data; " .. head .. "\r\n\r\n" .. data .. "\r\n" end

local head_bytes = #"Content-Disposition: form-data; name="

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
    { '--b\r\nContent-Disposition: form-data;\r\n\tname="f";\r\n filename="report.pdf"\r\n\r\n1\r\n' .. part("name=a;\r\n ", "2") .. "--b--", { a = "2" } },
    { "--b\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=a\r\nX: y\r\n\r\n1\r\n--b--", { a = "1" } },
  } do
    check.equal({ case[1], (fields(case[1])) }, { case[1], case[2] })
  end
  local got_file = fields(part('name="f"; filename="x"', "y") .. "--b--")
  check.raises('req:form: the field "f" is a file: read the form with req:parts()', function() return got_file.f end)
  check.equal(got_file.other, nil)
  local body = part("name=a", "1") .. part("name=b", "2") .. part("name=a", "3") .. "--b--"
  local lists = {}
  local got = fields(body, nil, lists)
  check.equal(got, { a = { "1", "3" }, b = { "2" } })
  check.equal(getmetatable(got) == lists, true)
end

function tests.long_fields_take_linear_time() -- else this takes many minutes
  local long = ("/"):rep(3900)
  local parts = part('name=a; filename="' .. ("x"):rep(3900) .. '/"\r\nX: a' .. (" "):rep(4000) .. "b", "1")
  check.equal(fields(parts:rep(999) .. part("name=" .. long:gsub("/", "x"), "2") .. "--b--"), { [long:gsub("/", "x")] = "2" })
  check.equal((multipart.fields("--b--", "multipart/form-data; boundary=b" .. (" "):rep(2000000) .. "x")), nil)
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
    { "part 1 has no valid", "--b\r\n Content-Disposition: form-data; name=a\r\n\r\n\r\n"  .. "--b--" },
    { "part 1 has no valid", part("name=a\r\nContent-Disposition: form-data; name=b", "") .. "--b--" },
    { "part 1 has no valid", "--b\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--b--" },
    { "part 2 has no valid", part("name=a", "1") .. "--b\r\n\r\n\r\n\r\n--b--" },
    { "the head of part 1 does not end within 8192 bytes", part("name=" .. ("a"):rep(8192 - head_bytes + 1), "") .. "--b--" },
    { "it has more than 1000 parts", part("name=a", "1"):rep(1001) .. "--b--" },
  } do
    local got, message = fields(case[2])
    local start = "the multipart body is malformed: " .. case[1]
    check.equal({ case[2], got, message:sub(1, #start) }, { case[2], nil, start })
  end
  check.equal(fields(part("name=a", "1"):rep(1000) .. "--b--"), { a = "1" })
  local longest = ("a"):rep(8192 - head_bytes)
  check.equal(fields(part("name=" .. longest, "") .. "--b--"), { [longest] = "" })
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

-- A request whose body arrives in these chunks; what it was refused with.
local function request(chunks)
  local req = { id = "0001" }
  function req.chunks()
    local n = 0
    return function()
      n = n + 1
      return chunks[n]
    end
  end
  return req
end

core.request_chunks = function(req) return req.chunks() end
core.refuse = function(_, status, reason) error({ status = status, reason = reason }, 0) end
core.too_large = function(_, reason) error({ status = 413, reason = reason }, 0) end

-- What a loop reads: a list of { name, filename, type, data }; or the status and the reason.
local function read(chunks, how, content_type)
  local list = {}
  local ok, refused = pcall(function()
    for p in multipart.parts(request(chunks), content_type or "multipart/form-data; boundary=b") do
      local data = "skipped"
      if how == "body" then
        data = p:body()
      elseif how == "chunks" then
        local pieces = {}
        for piece in p:chunks() do
          check.equal(piece ~= "", true)
          pieces[#pieces + 1] = piece
        end
        data = table.concat(pieces)
      end
      list[#list + 1] = { p.name, p.filename or "none", p.type, data }
    end
  end)
  if ok then return list end
  if type(refused) ~= "table" then error(refused, 0) end
  return refused
end

local function split(body, at) return { body:sub(1, at), body:sub(at + 1) } end

local function bytes_of(body)
  local list = {}
  for n = 1, #body do list[n] = body:sub(n, n) end
  return list
end

local corpus = {
  { part("name=a", "1") .. "--b--\r\n", { { "a", "none", "text/plain", "1" } } },
  { "--b--", {} }, { "pre\r\n--bx\r\n--b-- \r\nepilogue\r\n--b\r\n", {} },
  { part('name=f; filename="x.png"\r\nContent-Type: image/png', "\r\n--b\0\r\n--\r\r\n\r") .. part("name=e", "") .. "--b--",
    { { "f", "x.png", "image/png", "\r\n--b\0\r\n--\r\r\n\r" }, { "e", "none", "text/plain", "" } } },
  { "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n--b \t\r\nContent-Disposition: form-data; name=c\r\n\r\n--bx\r\n--b--\t",
    { { "a", "none", "text/plain", "" }, { "c", "none", "text/plain", "--bx" } } },
  { part('name="f"; filename=""', "") .. part("name=f; filename*=UTF-8''%e2%82%ac%20x", "2") .. part("name=g; filename=a; filename*=utf-8'en'b", "")
    .. "--b--",
    { { "f", "", "text/plain", "" }, { "f", "\u{20ac} x", "text/plain", "2" }, { "g", "b", "text/plain", "" } } },
}

function tests.a_body_may_be_split_at_every_byte()
  for _, case in ipairs(corpus) do
    local body, expected = case[1], case[2]
    for _, how in ipairs { "body", "chunks", "skip" } do
      local list = {}
      for n, one in ipairs(expected) do list[n] = { one[1], one[2], one[3], how == "skip" and "skipped" or one[4] } end
      check.equal(read({ body }, how), list)
      check.equal(read(bytes_of(body), how), list)
      for at = 0, #body do check.equal({ at, read(split(body, at), how) }, { at, list }) end
    end
  end
end

function tests.a_body_that_ends_early_is_refused_wherever_it_is_split()
  local body = corpus[4][1]
  for length = 0, #body - 3 do
    for _, chunks in ipairs { { body:sub(1, length) }, bytes_of(body:sub(1, length)) } do
      local refused = read(chunks, "body")
      check.equal({ length, refused.status, (refused.reason or ""):match("^the multipart body is malformed: ") ~= nil }, { length, 400, true })
    end
  end
end

function tests.file_names()
  for head, expected in pairs {
    ['filename="C:\\dir\\photo.png"'] = "photo.png", ['filename="../../etc/passwd"'] = "passwd", ['filename="/a/b/"'] = "",
    ['filename=".."'] = "", ['filename="a/."'] = "", ['filename="a%22b.txt"'] = 'a"b.txt', ['filename="\u{e4}\u{1f600}.txt"'] = "\u{e4}\u{1f600}.txt",
    ["filename*=UTF-8''..%2f..%2fx"] = "x", ["filename=a; filename*=latin1''%e4"] = "a", ["filename=a; filename*=UTF-8''%zz"] = "a",
    ["filename*=UTF-8''a%00b"] = false, ['filename="a\0b"'] = false, ['filename="a%0D%0Ab"'] = false, ['filename="a\tb"'] = false,
    ['filename="\xff"'] = false, ["filename*=UTF-8''%ff"] = false, ["filename*=x"] = false,
  } do
    local got = read({ part("name=f; " .. head, "") .. "--b--" }, "skip")
    if expected then
      check.equal({ head, got }, { head, { { "f", expected, "text/plain", "skipped" } } })
    else
      check.equal({ head, got.status }, { head, 400 })
    end
  end
  check.equal(read({ part('name="\xff"', "") .. "--b--" }, "skip").reason, "the multipart body is malformed: the name of part 1 is not UTF-8")
  check.equal(read({ part('name="a\0"', "") .. "--b--" }, "skip").reason,
    "the multipart body is malformed: the name of part 1 has a control character")
end

function tests.limits_of_parts()
  check.equal(#read({ part("name=a", ""):rep(1000) .. "--b--" }, "skip"), 1000)
  check.equal(read({ part("name=a", ""):rep(1001) .. "--b--" }, "skip"), { status = 400, reason = "the multipart body is malformed: it has more than 1000 parts" })
  local longest = ("a"):rep(8192 - head_bytes)
  for _, bytes in ipairs { 1, 100, 8192 } do
    local function chunks(body)
      local list = {}
      for at = 1, #body, bytes do list[#list + 1] = body:sub(at, at + bytes - 1) end
      return list
    end
    check.equal(#read(chunks(part("name=" .. longest, "") .. "--b--"), "skip"), 1)
    check.equal(read(chunks(part("name=a" .. longest, "") .. "--b--"), "skip").status, 400)
    check.equal(read(chunks("--b\r\n" .. ("x"):rep(100000)), "skip").reason,
      "the multipart body is malformed: the head of part 1 does not end within 8192 bytes")
  end
  check.equal(read({}, "skip", "multipart/form-data; boundary=" .. ("x"):rep(71)).reason,
    "the multipart body is malformed: the Content-Type has no valid boundary")
  local body = part("name=a", ("x"):rep(20)) .. "--b--"
  for max, expected in pairs { [20] = ("x"):rep(20), [19] = 'the part "a" has more than 19 bytes' } do
    local ok, got = pcall(function()
      return multipart.parts(request(bytes_of(body)), "multipart/form-data; boundary=b")():body(max)
    end)
    check.equal(ok and got or got.status == 413 and got.reason, expected)
  end
end

function tests.wrong_uses_of_a_part()
  local first
  for p in multipart.parts(request { part("name=a", "1") .. part("name=b", "2") .. "--b--" }, "multipart/form-data; boundary=b") do
    if first then
      check.raises("the loop is at another part", first.body, first)
      check.equal(p:body("1k"), "2")
      check.raises("was read already", p.body, p)
      check.raises("with a colon", p.body)
      check.raises("with a colon", p.chunks, {})
    else
      check.raises("max must be a number of bytes", p.body, p, "x")
      check.raises("path must be the name of a file", p.save, p)
      check.raises("path must be the name of a file", p.save, p, "uploads/")
      check.raises("path must be the name of a file", p.save, p, "a\0b")
      check.raises("too many arguments", p.save, p, "a", 1, 2)
    end
    first = p
  end
end

-- The reader keeps no more than a chunk and what may be the beginning of a delimiter.
function tests.the_memory_for_a_large_part_is_constant()
  local chunk, count = ("\r\n--a"):rep(13000), 0
  local req = { id = "1" }
  function req.chunks()
    return function()
      count = count + 1
      if count == 1 then return part("name=a", ""):sub(1, -3) end
      if count == 2000 then return "\r\n--b--" end
      return chunk
    end
  end
  for p in multipart.parts(req, "multipart/form-data; boundary=b") do
    local bytes, most = 0, 0
    for piece in p:chunks() do
      bytes = bytes + #piece
      if count % 100 == 0 then
        collectgarbage()
        most = math.max(most, collectgarbage("count"))
      end
    end
    check.equal(bytes, 1998 * #chunk)
    check.equal(most < 20000, true)
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
