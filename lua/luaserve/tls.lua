-- tls.lua - the options of ls.listen and ls.tcp for TLS and for the PROXY protocol (tls, trusted, proxy_protocol), the
-- option tls of ls.connect, and the options of sock:starttls.
-- lua/docs/reference/tls.md documents them.

local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

local tls = {}

local cert_names = { cert = true, key = true, key_password = true }
local shared_names = { client_ca = true, verify = true, min = true, ciphers = true, tickets = true, alpn = true }
local all_names = options.merged(cert_names, shared_names)
local client_names = options.merged(cert_names, { ca = true, server_name = true, alpn = true, insecure = true, min = true,
  ciphers = true })

-- Of sock:starttls: those of both roles, and the rest of each role.
local starttls_both = { server = true, timeout = true }
local starttls_server = options.merged(all_names, starttls_both)
local starttls_client = options.merged(client_names, starttls_both)
local starttls_limits = { timeout = { "handshake_ms_max", "seconds", 1, 2 ^ 32 - 1 } }

-- The tables of options, for the tests.
tls.known = { ["ls.listen: tls"] = all_names, ["ls.tcp: tls"] = all_names, ["ls.connect: tls"] = client_names,
  ["sock:starttls"] = starttls_client }
tls.specs = { ["sock:starttls"] = starttls_limits }

local tls_forms = 'a table such as { cert = "cert.pem", key = "key.pem" }, a list of such tables, or "self-signed"'

-- The name of an option for a message: "ls.tcp: tls.cert", "sock:starttls: cert".
local function option(where, name)
  return where .. (where:find(": ", 1, true) and "." or ": ") .. name
end

-- A field that is nil or a string with at least one byte and no NUL.
local function text(where, given, name, what)
  local value = given[name]
  if value ~= nil and (type(value) ~= "string" or value == "" or value:find("\0", 1, true)) then
    usage.error("%s must be %s; got %s", option(where, name), what, usage.quote(value))
  end
  return value
end

local function one_of(where, given, name, first, second)
  local value = given[name]
  if value ~= nil and value ~= first and value ~= second then
    usage.error('%s must be "%s" or "%s"; got %s', option(where, name), first, second, usage.quote(value))
  end
  return value
end

local function flag(where, given, name)
  local value = given[name]
  if value ~= nil and type(value) ~= "boolean" then
    usage.error("%s must be true or false; got %s", option(where, name), usage.quote(value))
  end
  return value
end

local function certificate(where, given)
  local out = {
    cert = text(where, given, "cert", "the file name of a certificate (PEM)"),
    key = text(where, given, "key", "the file name of a key (PEM)"),
    password = text(where, given, "key_password", "a string, the password of the key"),
  }
  if not out.cert then
    usage.error('%s is missing; give the certificate, such as cert = "cert.pem"', option(where, "cert"))
  end
  return out
end

-- { "h2", "http/1.1" } -> "h2,http/1.1"
local function protocols(where, list)
  local valid = type(list) == "table" and #list > 0
  for _, name in ipairs(valid and list or {}) do
    valid = valid and type(name) == "string" and name:find("^[^,%c]+$") and #name <= 255
  end
  if not valid then
    usage.error('%s must be a list of protocol names such as { "http/1.1" }; got %s', option(where, "alpn"),
      usage.quote(list))
  end
  return table.concat(list, ",")
end

-- { { cert =, key = }, ... } -> a list of certificates for the core
local function certificates(where, list)
  local out = {}
  for name in pairs(cert_names) do
    if list[name] ~= nil then usage.error("%s is a list of certificates; put %s into one of them", where, name) end
  end
  for i, one in ipairs(list) do
    local place = string.format("%s%s[%d]", where, where:find(": ", 1, true) and "" or ": options", i)
    if type(one) ~= "table" then
      usage.error('%s must be a table such as { cert = "cert.pem", key = "key.pem" }; got %s', place, usage.quote(one))
    end
    options.check_names(place, one, cert_names)
    out[i] = certificate(place, one)
  end
  return out
end

local http_names = { ["http/1.1"] = true, ["http/1.0"] = true }

-- A client that has negotiated HTTP/2 sends nothing else.
local function check_http_names(where, list)
  for _, name in ipairs(list) do
    if not http_names[name] then
      usage.error('%s names %s, which ls.listen does not speak; it speaks "http/1.1"', option(where, "alpn"),
        usage.quote(name))
    end
  end
end

-- The options of a server, whose names are keys of `names` -> the table for the core. `alpn`: as for tls.read.
local function server_settings(where, given, names, alpn)
  local count, known = #given, options.merged(names)
  for i = 1, count do known[i] = true end
  options.check_names(where, given, known)
  local verify = one_of(where, given, "verify", "optional", "required")
  local shared = {
    min = one_of(where, given, "min", "1.2", "1.3"),
    ciphers = text(where, given, "ciphers", "a list of ciphers as openssl-ciphers(1) describes it"),
    ca = text(where, given, "client_ca", "the file name of the certificates (PEM) that sign those of clients"),
    tickets = text(where, given, "tickets", "the file name of ticket keys"),
    alpn = alpn,
  }
  if given.alpn ~= nil then
    shared.alpn = protocols(where, given.alpn)
    if alpn then check_http_names(where, given.alpn) end
  end
  if verify and not shared.ca then usage.error("%s needs client_ca", option(where, "verify")) end
  shared.verify = shared.ca and (verify or "required")
  local out = count > 0 and certificates(where, given) or { certificate(where, given) }
  for name, value in pairs(shared) do out[name] = value end
  return out
end

-- The value of `tls` -> the table for the core.
local function settings_of(fname, given, alpn)
  local where = fname .. ": tls"
  if given == "self-signed" then return { self_signed = true, alpn = alpn } end
  if type(given) ~= "table" then usage.error("%s must be %s; got %s", where, tls_forms, usage.quote(given)) end
  return server_settings(where, given, all_names, alpn)
end

-- The options of a client, whose names are keys of `names` -> the table for the core.
local function client_settings(where, given, names)
  options.check_names(where, given, names)
  local insecure = flag(where, given, "insecure")
  local identity = (given.cert or given.key or given.key_password) and certificate(where, given) or {}
  return {
    cert = identity.cert,
    key = identity.key,
    password = identity.password,
    ca = text(where, given, "ca", "the file name of trusted certificates (PEM)"),
    server_name = text(where, given, "server_name", "the name in the certificate of the server"),
    insecure = insecure,
    min = one_of(where, given, "min", "1.2", "1.3"),
    ciphers = text(where, given, "ciphers", "a list of ciphers as openssl-ciphers(1) describes it"),
    alpn = given.alpn ~= nil and protocols(where, given.alpn) or nil,
  }
end

-- client(fname, given) -> the table for the core; nil for false, which means no TLS. Raises.
function tls.client(fname, given)
  local where = fname .. ": tls"
  if given == false then return nil end
  if given == true then return {} end
  if type(given) ~= "table" then
    usage.error('%s must be true or a table such as { ca = "ca.pem" }; got %s', where, usage.quote(given))
  end
  return client_settings(where, given, client_names)
end

local starttls_forms = 'a table: sock:starttls{ server_name = "example.org" } for a client, '
  .. 'sock:starttls{ server = true, cert = "cert.pem", key = "key.pem" } for a server'

-- starttls(given) -> the table for the core. Raises.
function tls.starttls(given)
  local where = "sock:starttls"
  if type(given) ~= "table" then usage.error("%s takes %s; got %s", where, starttls_forms, usage.quote(given)) end
  local server = flag(where, given, "server")
  local own, other = starttls_client, starttls_server
  if server then own, other = other, own end
  for name in pairs(given) do
    if other[name] and not own[name] then
      usage.error("%s is an option of a %s; this call has%s server = true", option(where, name),
        server and "client" or "server", server and "" or " no")
    end
  end
  local out = server and server_settings(where, given, own) or client_settings(where, given, own)
  options.read_all(where, given, starttls_limits, out)
  if not server and not out.server_name and not out.insecure then
    usage.error("%s is missing: the name that the certificate of the server must have", option(where, "server_name"))
  end
  out.server = server
  return out
end

local function trusted_of(fname, list, core)
  if type(list) ~= "table" or #list == 0 then
    usage.error('%s: trusted must be a list of addresses and networks such as { "127.0.0.1", "10.0.0.0/8" }; got %s',
      fname, usage.quote(list))
  end
  for i, item in ipairs(list) do
    if type(item) ~= "string" or not core.is_network(item) then
      usage.error('%s: trusted[%d] must be an address or a network such as "127.0.0.1", "10.0.0.0/8", "fd00::/8" or '
        .. '"unix:"; got %s', fname, i, usage.quote(item))
    end
  end
  return list
end

-- read(fname, given, core, out, alpn): reads tls, trusted and proxy_protocol of the table `given` into `out`, under the
-- names of the core. `alpn`: the protocols of ALPN for a listener of HTTP, separated by commas, unless the site names
-- some; nil: the site's only. Raises.
function tls.read(fname, given, core, out, alpn)
  if given.proxy_protocol ~= nil and type(given.proxy_protocol) ~= "boolean" then
    usage.error("%s: proxy_protocol must be true or false; got %s", fname, usage.quote(given.proxy_protocol))
  end
  if given.trusted ~= nil then out.trusted = trusted_of(fname, given.trusted, core) end
  out.proxy_protocol = given.proxy_protocol
  if out.proxy_protocol and not out.trusted then
    usage.error('%s: proxy_protocol = true needs trusted, the addresses of the proxies, such as trusted = { "127.0.0.1" }',
      fname)
  elseif out.trusted and not out.proxy_protocol then
    usage.error("%s: trusted has no effect without proxy_protocol = true", fname)
  end
  if given.tls ~= nil then out.tls = settings_of(fname, given.tls, alpn) end
end

return tls
