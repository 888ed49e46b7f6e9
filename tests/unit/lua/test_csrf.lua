-- luaserve.csrf: which requests are refused.
local check = require "check"
local csrf = require "luaserve.csrf"

local tests = {}

-- ask{ method =, host =, session =, form =, options =, [header] = value } -> the status of the refusal, or "passed".
local function ask(given)
  local known = { method = true, host = true, session = true, form = true, options = true }
  local headers = {}
  for name, value in pairs(given) do if not known[name] then headers[name] = value end end
  local req = { method = given.method or "POST", authority = given.host or "a.example", headers = headers, ip = "192.0.2.1",
    session = given.session }
  function req.form() return given.form or error("the body is not read") end
  local passed = false
  local status, text = csrf(given.options)(req, {}, function() passed = true end)
  check.equal(passed, status == nil)
  return status or "passed", text
end

function tests.safe_methods_pass()
  for _, method in ipairs { "GET", "HEAD", "OPTIONS", "TRACE" } do
    check.equal(ask { method = method, ["sec-fetch-site"] = "cross-site", origin = "https://b.example" }, "passed")
  end
  for _, method in ipairs { "POST", "PUT", "PATCH", "DELETE", "get", "PURGE" } do
    check.equal(ask { method = method, ["sec-fetch-site"] = "cross-site" }, 403)
  end
end

function tests.sec_fetch_site()
  for value, expected in pairs { ["same-origin"] = "passed", none = "passed", ["same-site"] = 403, ["cross-site"] = 403,
    other = 403, [""] = 403, ["same-origin, cross-site"] = 403 } do
    check.equal({ value, (ask { ["sec-fetch-site"] = value }) }, { value, expected })
    check.equal({ value, (ask { ["sec-fetch-site"] = value, cookie = "a=b", session = { csrf_token = "t" },
      ["x-csrf-token"] = "t" }) }, { value, expected })
  end
  check.equal(ask { ["sec-fetch-site"] = "cross-site", origin = "https://a.example" }, 403)
  check.equal(ask { ["sec-fetch-site"] = "same-origin", origin = "https://b.example" }, "passed")
end

function tests.origin()
  for _, case in ipairs {
    { "https://a.example", "a.example", "passed" }, { "http://a.example", "a.example", "passed" },
    { "HTTPS://A.Example", "a.eXample", "passed" }, { "https://a.example:443", "a.example", "passed" },
    { "https://a.example", "a.example:443", "passed" }, { "http://a.example", "a.example:80", "passed" },
    { "https://a.example:8443", "a.example:8443", "passed" }, { "http://[::1]:80", "[::1]", "passed" },
    { "https://a.example", "a.example:80", 403 }, { "https://a.example:8443", "a.example", 403 },
    { "https://a.example", "a.example:8443", 403 }, { "https://b.example", "a.example", 403 },
    { "https://a.example.evil.example", "a.example", 403 }, { "https://evila.example", "a.example", 403 },
    { "https://sub.a.example", "a.example", 403 }, { "null", "a.example", 403 }, { "", "a.example", 403 },
    { "a.example", "a.example", 403 }, { "https://a.example/", "a.example", 403 },
    { "https://evil@a.example", "a.example", 403 }, { "https://a.example https://b.example", "a.example", 403 },
  } do
    check.equal({ case[1], case[2], (ask { origin = case[1], host = case[2] }) }, case)
  end
  local with_token = { cookie = "a=b", session = { csrf_token = "t" }, ["x-csrf-token"] = "t" }
  check.equal(ask(with_token), "passed")
  with_token.origin = "https://b.example"
  check.equal(ask(with_token), 403)
end

function tests.other_origins_that_are_allowed()
  local given = { origins = { "https://app.example", "http://Other.example:81", "https://port.example:443" } }
  check.equal(ask { options = given, origin = "https://app.example", ["sec-fetch-site"] = "cross-site" }, "passed")
  check.equal(ask { options = given, origin = "http://other.example:81" }, "passed")
  check.equal(ask { options = given, origin = "https://port.example" }, "passed")
  check.equal(ask { options = given, origin = "http://app.example" }, 403)
  check.equal(ask { options = given, origin = "https://app.example:444" }, 403)
  check.equal(ask { options = given, ["sec-fetch-site"] = "cross-site" }, 403)
end

function tests.programs_without_a_login_of_the_browser_pass()
  check.equal(ask {}, "passed")
  check.equal(ask { authorization = "Bearer x" }, "passed")
  check.equal(ask { authorization = "bearer x" }, "passed")
  for _, case in ipairs { { cookie = "a=b" }, { authorization = "Basic x" }, { authorization = "Bearerx y" },
    { cookie = "a=b", authorization = "Bearer x" } } do
    check.equal(ask(case), 403)
  end
end

function tests.the_token_of_the_session()
  local session = { csrf_token = "token" }
  local form, multipart = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
  local upper = form:upper() .. "; charset=utf-8"
  for _, case in ipairs {
    { "passed", cookie = "a", session = session, ["x-csrf-token"] = "token" },
    { "passed", cookie = "a", session = session, ["content-type"] = form, form = { _csrf = "token" } },
    { "passed", cookie = "a", session = session, ["content-type"] = upper, form = { _csrf = "token" } },
    { "passed", cookie = "a", session = session, ["content-type"] = multipart, form = { _csrf = "token" },
      ["content-length"] = "65536" },
    { 403, cookie = "a", session = session, ["content-type"] = multipart, ["content-length"] = "65537" },
    { 403, cookie = "a", session = session, ["content-type"] = multipart },
    { "passed", cookie = "a", session = session, ["content-type"] = multipart, ["x-csrf-token"] = "token" },
    { 403, cookie = "a", session = {}, ["content-type"] = form },
    { 403, cookie = "a", ["content-type"] = form },
    { 403, cookie = "a", session = session, ["x-csrf-token"] = "other" },
    { 403, cookie = "a", session = session, ["x-csrf-token"] = "" },
    { 403, cookie = "a", session = session, ["content-type"] = form, form = {} },
    { 403, cookie = "a", session = session, ["content-type"] = "text/plain" },
    { 403, cookie = "a", session = {}, ["x-csrf-token"] = "" },
    { 403, cookie = "a", ["x-csrf-token"] = "token" },
  } do
    local expected = table.remove(case, 1)
    check.equal(ask(case), expected)
  end
end

function tests.wrong_options()
  for _, case in ipairs {
    { { origins = "https://a.example" }, "origins must be a list" }, { { origins = { "a.example" } }, "without a path" },
    { { origins = { "https://a.example/" } }, "without a path" }, { { origins = { 1 } }, "without a path" },
    { { origin = {} }, "did you mean 'origins'?" }, { "https://a.example", "takes a table" },
  } do
    check.raises({ check.line(), case[2] }, function() csrf(case[1]) end)
  end
  check.raises("needs the request", csrf.token, {})
end

function tests.a_form_that_is_not_read_for_its_token_is_told_what_to_send()
  local why = "not read for its token: send it in the field X-CSRF-Token"
  for length, told in pairs { ["65536"] = false, ["65537"] = true, [""] = true } do
    local _, text = ask { cookie = "a", session = { csrf_token = "token" }, form = {},
      ["content-type"] = "multipart/form-data; boundary=x", ["content-length"] = length }
    check.equal(text:find(why, 1, true) ~= nil, told)
  end
end

return tests
