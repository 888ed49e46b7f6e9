-- tls, trusted and proxy_protocol of ls.listen and ls.tcp, and the options of sock:starttls: what the core receives, and
-- the messages for other values.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"
local tls = require "luaserve.tls"

local function handler() end

-- The tables that the core receives from ls.listen and from ls.tcp with these options.
local function received(given)
  core.take_calls()
  given.port, given.handler = 1, ls.app()
  ls.listen(given)
  given.handler = nil
  ls.tcp(given, handler)
  local calls = core.take_calls()
  return calls[1][2], calls[2][2]
end

local function refused(parts, given)
  check.raises(parts, received, given)
end

local tests = {}

function tests.one_certificate()
  local http, tcp = received{ tls = { cert = "c.pem", key = "k.pem" } }
  check.equal(http.tls, { { cert = "c.pem", key = "k.pem" }, min = "1.2", alpn = "http/1.1" })
  check.equal(tcp.tls, { { cert = "c.pem", key = "k.pem" }, min = "1.2" })
  http = received{ tls = { cert = "both.pem", key_password = "secret" } }
  check.equal(http.tls[1], { cert = "both.pem", password = "secret" })
end

function tests.several_certificates()
  local http = received{ tls = { { cert = "a" }, { cert = "b", key = "k" }, min = "1.3" } }
  check.equal(http.tls, { { cert = "a" }, { cert = "b", key = "k" }, min = "1.3", alpn = "http/1.1" })
end

function tests.self_signed()
  local http, tcp = received{ tls = "self-signed" }
  check.equal(http.tls, { self_signed = true, alpn = "http/1.1" })
  check.equal(tcp.tls, { self_signed = true })
end

function tests.the_other_options()
  local _, tcp = received{ tls = { cert = "c", client_ca = "ca", min = "1.2", ciphers = "HIGH", tickets = "t",
    alpn = { "http/1.1", "http/1.0" } } }
  check.equal(tcp.tls, { { cert = "c" }, ca = "ca", verify = 2, min = "1.2", ciphers = "HIGH", tickets = "t",
    alpn = "http/1.1,http/1.0" })
  ls.tcp({ port = 1, tls = { cert = "c", alpn = { "one", "two" } } }, handler)
  check.equal(core.take_calls()[1][2].tls.alpn, "one,two")
  _, tcp = received{ tls = { cert = "c", client_ca = "ca", verify = "optional" } }
  check.equal(tcp.tls.verify, 1)
end

function tests.trusted_proxies()
  local list = { "127.0.0.1", "10.0.0.0/8", "unix:" }
  local http, tcp = received{ trusted = list, proxy_protocol = true }
  check.equal({ http.trusted, http.proxy_protocol, tcp.trusted, tcp.proxy_protocol }, { list, true, list, true })
  http = received{ proxy_protocol = false }
  check.equal(http.trusted, nil)
  core.take_calls()
  ls.listen{ port = 1, handler = ls.app(), trusted = list } -- for the fields of requests
  check.equal(core.take_calls()[1][2].trusted, list)
end

function tests.options_beside_an_address()
  core.take_calls()
  ls.listen("127.0.0.1:1", ls.app(), { tls = "self-signed" })
  ls.tcp(7000, handler, { tls = "self-signed" })
  local calls = core.take_calls()
  check.equal({ calls[1][2].tls.self_signed, calls[2][2].tls.self_signed }, { true, true })
end

function tests.other_values_are_refused()
  for _, value in ipairs { true, 1, "selfsigned", handler } do refused('"self-signed"; got ', { tls = value }) end
  refused("tls.cert is missing", { tls = {} })
  refused("tls.cert is missing", { tls = { key = "k.pem" } })
  refused("tls[2].cert is missing", { tls = { { cert = "c" }, { key = "k" } } })
  refused("tls[2] must be a table", { tls = { { cert = "c" }, "self-signed" } })
  refused("tls[1]: unknown option \"min\"", { tls = { { cert = "c", min = "1.3" } } })
  refused("put cert into one of them", { tls = { { cert = "c" }, cert = "d" } })
  refused({ 'unknown option "certs"', "did you mean 'cert'?" }, { tls = { certs = "c" } })
  refused("tls.cert must be the file name", { tls = { cert = "" } })
  refused("tls.cert must be the file name", { tls = { cert = "a\0b" } })
  refused('tls.min must be "1.2" or "1.3"; got "1.1"', { tls = { cert = "c", min = "1.1" } })
  refused('tls.verify must be "optional" or "required"; got true', { tls = { cert = "c", client_ca = "a", verify = true } })
  refused("tls.verify needs client_ca", { tls = { cert = "c", verify = "required" } })
  for _, value in ipairs { "http/1.1", {}, { "" }, { "a,b" }, { 1 }, { ("x"):rep(256) } } do
    refused("tls.alpn must be a list", { tls = { cert = "c", alpn = value } })
  end
  refused('ls.listen: tls.alpn names "h2", but http2 = false, or this build has no HTTP/2',
    { tls = { cert = "c", alpn = { "http/1.1", "h2" } } })
  refused('ls.listen: tls.alpn names "h3", which ls.listen does not speak; it speaks "http/1.1"',
    { tls = { cert = "c", alpn = { "http/1.1", "h3" } } })
  refused("ls.listen: http2 = true needs a build with nghttp2", { http2 = true })
  for _, value in ipairs { "127.0.0.1", {}, true } do
    refused("trusted must be a list", { trusted = value, proxy_protocol = true })
  end
  refused('trusted[2] must be an address or a network', { trusted = { "::1", "proxy.example" }, proxy_protocol = true })
  refused('trusted[1] must be', { trusted = { 10 }, proxy_protocol = true })
  refused("proxy_protocol must be true or false", { proxy_protocol = "v2" })
  refused("proxy_protocol = true needs trusted", { proxy_protocol = true })
  refused("trusted has no effect without proxy_protocol", { trusted = { "::1" } })
end

function tests.starttls_of_a_client()
  check.equal(tls.starttls{ server_name = "a.example" }, { server_name = "a.example", min = "1.2" })
  check.equal(tls.starttls{ insecure = true, server = false },
    { insecure = true, server = false, min = "1.2" })
  check.equal(tls.starttls{ server_name = "a", ca = "ca", cert = "c", key = "k", key_password = "p", alpn = { "one" },
    min = "1.3", ciphers = "HIGH", timeout = 0.5 },
    { server_name = "a", ca = "ca", cert = "c", key = "k", password = "p", alpn = "one", min = "1.3", ciphers = "HIGH",
      handshake_ms_max = 500 })
end

function tests.starttls_of_a_server()
  check.equal(tls.starttls{ server = true, cert = "c", key = "k" },
    { { cert = "c", key = "k" }, server = true, min = "1.2" })
  check.equal(tls.starttls{ server = true, { cert = "c" }, { cert = "d" }, client_ca = "ca", verify = "optional",
    min = "1.2", ciphers = "HIGH", tickets = "t", alpn = { "one", "two" }, timeout = 2 },
    { { cert = "c" }, { cert = "d" }, server = true, ca = "ca", verify = 1, min = "1.2", ciphers = "HIGH",
      tickets = "t", alpn = "one,two", handshake_ms_max = 2000 })
end

function tests.other_options_of_starttls_are_refused()
  local function fails(part, given)
    check.raises({ "sock:starttls", part }, tls.starttls, given)
  end
  fails("takes a table: ", nil)
  fails('got "self-signed"', "self-signed")
  fails(": server_name is missing", {})
  fails(": server_name must be the name", { server_name = "" })
  fails(": server must be true or false", { server = 1 })
  fails(": insecure must be true or false", { insecure = 1 })
  fails(": cert is missing", { server = true })
  fails(": cert is missing", { server_name = "a", key = "k" })
  fails(": verify needs client_ca", { server = true, cert = "c", verify = "required" })
  fails(": options[1].cert is missing", { server = true, { key = "k" } })
  fails(": ca is an option of a client; this call has server = true", { server = true, cert = "c", ca = "ca" })
  fails(": tickets is an option of a server; this call has no server = true", { server_name = "a", tickets = "t" })
  fails(": client_ca is an option of a server", { server_name = "a", client_ca = "t" })
  fails("did you mean 'client_ca'?", { server = true, cert = "c", cleint_ca = "ca" })
  fails(": timeout must be from", { server_name = "a", timeout = 0 })
end

return tests
