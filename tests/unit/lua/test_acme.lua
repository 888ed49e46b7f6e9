-- tls.acme: what the core receives, messages for other values, when to renew and when to try again.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"
local acme = require "luaserve.acme"
local client = require "luaserve.acme_client"

local function listen(given)
  local dict = core.results.dict
  core.results.dict = { {} }
  core.take_calls()
  local ok, message = pcall(ls.listen, { port = 1, handler = ls.app(), tls = given })
  core.results.dict = dict
  if not ok then error(message, 0) end
  for _, call in ipairs(core.take_calls()) do
    if call[1] == "listen" then return call[2].tls end
  end
end

local function one(name, more)
  local given = { names = { name }, store = "certs" }
  for key, value in pairs(more or {}) do given[key] = value end
  return { acme = given }
end

local tests = {}

function tests.the_certificate_has_the_first_name()
  check.equal(listen(one "Example.org.")[1], { supplied = "example.org" })
  local tls = listen{ one "two.example", { cert = "c.pem" }, min = "1.3" }
  check.equal({ tls[1], tls[2], tls.min }, { { supplied = "two.example" }, { cert = "c.pem" }, "1.3" })
end

function tests.names_that_a_certificate_will_have_are_not_lacking()
  listen(one "lacking.example")
  check.equal(acme.lacking("lacking.example\nother.example\n"), "other.example\n")
end

function core.acme_read(text) return nil, text == "PEM" and "there is no key" or "there is no certificate" end

function tests.wrong_values()
  listen(one "known.example")
  core.files["other.pem"], core.files["ca.pem"] = "text", "PEM"
  listen(one("ca.example", { ca = "ca.pem" }))
  listen { one "string.example", { acme = { names = "other.example", store = "certs" } } }
  listen(one("localhost", { directory = "https://ca.example/dir" }))
  for _, case in ipairs {
    { "store is missing", { acme = { names = { "a.example" } } } },
    { "names must be a list of 1 to 100 names", { acme = { store = "certs" } } }, { "1 to 100 names", one(nil, { names = {} }) },
    { "is no name: write names such as", one "192.0.2.1" }, { "is no name: write names such as", one "a.example:80" },
    { "write it in the form that requests have it", one "b\xc3\xbccher.example" }, { "without a scheme, a port or a path", one "a..example" },
    { "without a scheme, a port or a path", one "https://a.example/" }, { "each by itself", one "a.example, b.example" },
    { "store is missing", one("a.example", { store = "redis:/host" }) },
    { "needs a proof in the DNS (dns-01)", one "*.a.example" }, { "names must be a list of names", one(1) },
    { 'directory must be "production" or "staging"', one("a.example", { directory = "http://a.example/dir" }) },
    { 'eab must be { kid = "...", key = "..." }', one("a.example", { eab = { kid = "a" } }) },
    { "ca: none.pem: not found", one("a.example", { ca = "none.pem" }) },
    { 'ca: "other.pem" has no certificate in PEM format', one("a.example", { ca = "other.pem" }) },
    { "email must be an address of mail", one("a.example", { email = "admin" }) },
    { 'Let\'s Encrypt has no certificates for "localhost"', one("localhost", { directory = "staging" }) },
    { "no name on the internet", one "intranet" }, { "no name on the internet", one "a.localhost" },
    { "another certificate of this listener has a.example", { one "a.example", one("b.example", { names = { "b.example", "A.example" } }) } },
    { "as those at", one("known.example", { store = "elsewhere" }) },
    { "acme and cert exclude each other", { cert = "c.pem", acme = one("a.example").acme } },
    { "put acme into one of them", { { cert = "c.pem" }, acme = one("a.example").acme } },
    { "acme and min exclude each other", { { min = "1.3", acme = one("a.example").acme } } },
  } do
    check.raises({ "test_acme.lua", case[1] }, listen, case[2])
  end
end

function tests.a_renewal_is_due_at_two_thirds_or_when_the_authority_wants_it()
  for _, days in ipairs { 6, 45, 90, 398 } do
    local certificate = { not_before = 1000, not_after = 1000 + days * 86400 }
    check.equal(acme.renews_at(certificate), 1000 + days * 57600)
    check.equal(acme.renews_at(certificate, 5000), 5000)
    check.equal(acme.renews_at(certificate, 1 << 40), certificate.not_after - days * 8640) -- not at the last moment
  end
end

function tests.each_request_of_an_order_keeps_the_lease()
  local one = client.new({ directory = "http://127.0.0.1:1/" }, {}, function(seconds) error({ paused = seconds }, 0) end)
  local _, failure = pcall(one.open, one)
  check.equal(failure.paused, 0)
end

function tests.attempts_back_off()
  local state = {}
  for _, wait in ipairs { 60, 300, 900, 3600, 21600, 21600 } do
    acme.failed(state, 1000)
    check.equal(state.next, 1000 + wait)
  end
  check.equal(state.failures, 6)
  acme.failed(state, 0, 40000)
  check.equal(state.next, 40000)
  acme.failed(state, 0, 1 << 40)
  check.equal(state.next, 7 * 86400)
end

return tests
