-- The client behind trusted proxies, from Forwarded and X-Forwarded-*.
local check = require "check"
local forwarded = require "luaserve.forwarded"

local tests = {}

-- 10.0.0.0/8 and ::1 are trusted. Other texts of digits, letters, "." and ":" are addresses as well.
local function hop(text)
  if text == "999.1.1.1" then return nil end
  return text:lower(), text:find("^10%.") ~= nil or text == "::1"
end

-- { ip, port or false, scheme, host }; false for what the fields do not tell.
local function read(...)
  local got = forwarded.read(hop, ...)
  check.equal(got.refused, nil)
  return { got.ip or false, got.ip and got.port, got.scheme or false, got.host or false }
end

-- This test and its like do not end if a reading takes quadratic time: it would be hours.
function tests.long_fields_take_linear_time()
  local blanks = (" "):rep(4000000)
  check.equal(read(nil, "192.0.2.7, a" .. blanks .. "b", "http" .. blanks .. ", https", blanks), { "unknown", false, "https", false })
  check.equal(forwarded.read(hop, "for=a" .. blanks .. "b").refused, "malformed Forwarded")
end

function tests.customary_fields()
  for _, case in ipairs {
    { { "192.0.2.7", false, false, false }, "192.0.2.7" }, { { "192.0.2.7", 80, false, false }, "192.0.2.7:80" },
    { { "2001:db8::a", false, false, false }, "2001:DB8::A" },
    { { "2001:db8::a", 4711, false, false }, "[2001:db8::a]:4711" },
    { { "2001:db8::a", false, false, false }, "[2001:db8::a]" },
    { { "192.0.2.7", false, false, false }, "6.6.6.6, 192.0.2.7 ,10.1.1.1,\t10.2.2.2" }, -- 6.6.6.6: by the client
    { { "10.1.1.1", false, false, false }, "10.1.1.1, 10.2.2.2" }, -- all are trusted
    { { "unknown", false, false, false }, "6.6.6.6, unknown, 10.2.2.2" },
    { { "unknown", false, false, false }, "6.6.6.6, , 10.2.2.2" },
    { { "unknown", false, false, false }, "192.0.2.7, unknown" }, { { "unknown", false, false, false }, "" },
    { { "unknown", false, false, false }, "192.0.2.7," }, { { "unknown", false, false, false }, "999.1.1.1" },
    { { "unknown", false, false, false }, "192.0.2.7:80:90" }, { { "unknown", false, false, false }, "unix:/run/a" },
    { { "unknown", false, false, false }, "192.0.2.7 10.0.0.1" }, { { "unknown", false, false, false }, "[192.0.2.7]" },
    { { "192.0.2.7", false, false, false }, "192.0.2.7:99999" },
    { { "192.0.2.7", false, "https", "shop.example:443" }, "192.0.2.7", "HTTPS", "shop.example:443" },
    { { false, nil, "https", "[::1]:80" }, nil, "wss", "[::1]:80" },
    { { "192.0.2.7", false, "https", "a" }, "192.0.2.7, 10.0.0.1", "https, http", "a, b" }, -- beside the client
    { { "192.0.2.7", false, "http", "b" }, "192.0.2.7", "https, http", "a, b" }, -- the one at the right
    { { "192.0.2.7", false, false, false }, "192.0.2.7", "gopher", "a/b" },
    { { "192.0.2.7", false, false, false }, "192.0.2.7", "", "a b" },
    { { "192.0.2.7", false, false, false }, "192.0.2.7", nil, "a:b" },
    { { "192.0.2.7", false, false, "a_b.example." }, "192.0.2.7", nil, "a_b.example." },
  } do
    check.equal({ case[2] or "", read(nil, table.unpack(case, 2, 4)) }, { case[2] or "", case[1] })
  end
end

function tests.the_standard_field()
  for _, case in ipairs {
    { { "192.0.2.43", false, false, false }, "for=192.0.2.43" },
    { { "2001:db8:cafe::17", 4711, "https", "a.example:8443" },
      'For="[2001:db8:cafe::17]:4711";Proto=https ; host="a.example:8443" ;by=10.0.0.1' },
    { { "192.0.2.43", false, "https", false }, 'for=6.6.6.6, for=192.0.2.43;proto=https, for="10.0.0.1";proto=http' },
    { { "10.1.1.1", false, "http", false }, "for=10.1.1.1;proto=http, for=10.2.2.2" },
    { { "unknown", false, "https", false }, "for=6.6.6.6, for=unknown;proto=https, for=10.2.2.2" },
    { { "unknown", false, false, false }, "for=_hidden, for=10.2.2.2" },
    { { "unknown", false, false, false }, "for=6.6.6.6, proto=ftp" },
    { { "unknown", false, "https", false }, "for=unknown;proto=https" },
    { { false, nil, "https", false }, "proto=https" }, { { false, nil, false, false }, "" },
    { { "2001:db8::1", false, "http", false }, "for=[2001:db8::1];proto=http" }, -- quotation marks are missing
  } do
    check.equal({ case[2], read(case[2]) }, { case[2], case[1] })
  end
end

-- What a client sends must not hide the client that its proxy names.
function tests.a_malformed_field_is_refused()
  for _, text in ipairs {
    'for="192.0.2.43', "for=192.0.2.43 x", "for=192.0.2.43;for=192.0.2.44", 'for="1.1.1.1\\"', "(", "for=(", "for=",
    'for="6.6.6.6, for="192.0.2.43"', -- a quotation mark of the client
  } do
    check.equal(forwarded.read(hop, text).ip, "unknown")
    check.equal(forwarded.read(hop, text).refused, "malformed Forwarded")
    check.equal(forwarded.read(hop, text, "192.0.2.43").refused, "malformed Forwarded")
  end
end

-- A proxy that writes one kind of field passes the other kind on from its client.
function tests.both_kinds_must_agree()
  for _, case in ipairs {
    { { "192.0.2.7", false, false, false }, "for=192.0.2.7", "192.0.2.7" },
    { { "192.0.2.7", false, "http", false }, "for=192.0.2.7;host=evil", "192.0.2.7", "https" },
    { { "192.0.2.7", false, "http", false }, "for=192.0.2.7;proto=https", "192.0.2.7", "http", "evil" },
    { { "192.0.2.7", false, "https", "a" }, "for=192.0.2.7;host=a;proto=https", "192.0.2.7", "https", "a" },
    { { "192.0.2.7", false, false, false }, 'for="192.0.2.7:1"', "192.0.2.7:2" },
    { { "192.0.2.7", false, false, false }, "for=192.0.2.7", nil, nil, "evil" },
    { { "192.0.2.7", false, "http", false }, "proto=https", "192.0.2.7" },
    { { "192.0.2.7", false, false, false }, "", "192.0.2.7" },
    { { false, nil, "https", false }, "proto=https", nil, "https" },
  } do
    check.equal({ case[2], read(table.unpack(case, 2, 5)) }, { case[2], case[1] })
  end
  for _, case in ipairs {
    { "for=6.6.6.6", "192.0.2.7" }, { "for=192.0.2.7", "6.6.6.6" }, { "for=10.1.1.1", "192.0.2.7" },
    { "for=unknown", "192.0.2.7" }, { "for=192.0.2.7", "unknown" },
  } do
    local got = forwarded.read(hop, case[1], case[2])
    check.equal(got.ip, "unknown")
    check.equal(got.refused:match("^X%-Forwarded%-For and Forwarded name different clients") ~= nil, true)
  end
end

function tests.the_text_of_both()
  check.equal(forwarded.read(hop, nil, "192.0.2.7:80").remote, "192.0.2.7:80")
  check.equal(forwarded.read(hop, nil, "[2001:db8::1]:80").remote, "[2001:db8::1]:80")
  check.equal(forwarded.read(hop, nil, "2001:db8::1").remote, "2001:db8::1")
  check.equal(forwarded.read(hop, nil, "unknown").remote, "unknown")
end

-- Any bytes give a result, without an error and in linear time.
function tests.any_text()
  local pieces = { "for=", "1.2.3.4", '"', ",", ";", "=", "[", "]", ":", " ", "\\", "proto=https", "host=a", "unknown" }
  local random = 1
  local function next_of(n)
    random = (random * 1103515245 + 12345) & 0x7fffffff
    return random // 65536 % n + 1
  end
  for _ = 1, 3000 do
    local text = {}
    for i = 1, next_of(12) do text[i] = pieces[next_of(#pieces)] end
    local got = forwarded.read(hop, table.concat(text), table.concat(text, "", 1, #text // 2), table.concat(text, ","))
    check.equal(type(got), "table")
  end
  check.equal(read(("for=10.0.0.1,"):rep(5000) .. "for=10.0.0.1")[1], "10.0.0.1")
  check.equal(read(nil, ("10.0.0.1, "):rep(5000) .. "192.0.2.7")[1], "192.0.2.7")
  check.equal(read(nil, (" "):rep(60000))[1], "unknown")
end

return tests
