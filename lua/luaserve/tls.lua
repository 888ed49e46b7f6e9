-- tls.lua - the options of ls.listen and ls.tcp for TLS and for the PROXY protocol (tls, trusted, proxy_protocol), the
-- option tls of ls.connect, and the options of sock:starttls.
-- lua/docs/reference/tls.md documents them.

local usage = require "luaserve.usage"
local options = require "luaserve.options"

local tls = {}

local ciphers_form = "a list of ciphers as openssl-ciphers(1) describes it"
local certificate_options = {
  cert = { "cert", "text", "the file name of a certificate (PEM)" }, -- with its chain
  key = { "key", "text", "the file name of a key (PEM)" }, -- default: that of cert
  key_password = { "password", "text", "a string, the password of the key" },
}
local shared = { -- by all certificates of a server, or of a client
  min = { "min", "choice", "1.2", "1.3", "1.2" }, -- oldest version of TLS
  ciphers = { "ciphers", "text", ciphers_form },
  alpn = true, -- string[] - protocols offered by ALPN, the preferred one first
}
local server_only = {
  client_ca = { "ca", "text", "the file name of the certificates (PEM) that sign those of clients" },
  verify = { "verify", "choice", "optional", "required" }, -- of client_ca: whether a client needs a certificate
  tickets = { "tickets", "text", "the file name of ticket keys" }, -- the same on several servers
}
local listener_only = {
  acme = true, -- AcmeOptions - in place of cert: a certificate that the server gets from an authority, and renews
  ticket_secret = true, -- string|string[] - that servers share, with ls.config{ redis = }: ticket keys over Redis
}
local client_only = {
  ca = { "ca", "text", "the file name of trusted certificates (PEM)" }, -- default: those of the system
  server_name = { "server_name", "text", "the name in the certificate of the server" }, -- default: the host
  insecure = { "insecure", "flag" }, -- accept any certificate
}
local starttls_only = { -- sock:starttls takes these and those of its role
  server = { "server", "flag" }, -- this side is the server
  timeout = { "handshake_ms_max", "seconds", 1, 2 ^ 32 - 1 }, -- seconds for the handshake; default: at most 10
}

tls.calls = {
  ["ls.listen: tls"] = { certificate_options, shared, server_only, listener_only }, -- TlsOptions
  ["ls.connect: tls"] = { certificate_options, shared, client_only }, -- TlsClientOptions
  ["sock:starttls"] = { certificate_options, shared, server_only, client_only, starttls_only }, -- StarttlsOptions
}
local listener_calls = tls.calls["ls.listen: tls"]
tls.calls["ls.tcp: tls"] = listener_calls
local one_certificate = { certificate_options }

-- lacking(names) -> those of the lines of `names` that no option acme of the site has.
function tls.lacking(names)
  local acme = package.loaded["luaserve.acme"]
  return acme and acme.lacking(names) or names
end

local tls_forms = 'a table such as { cert = "cert.pem", key = "key.pem" }, a list of such tables, or "self-signed"'

-- The name of an option for a message: "ls.tcp: tls.cert", "sock:starttls: cert".
local function option(where, name)
  return where .. (where:find(": ", 1, true) and "." or ": ") .. name
end

-- The same for options.take: the call, and "tls." or nothing.
local function split(where)
  local fname, prefix = where:match("^(.-): (.*)$")
  return fname or where, prefix and prefix .. "."
end

local function take(where, given, tables)
  local fname, prefix = split(where)
  return options.take(fname, given, tables, {}, prefix)
end

local function check_cert(where, out)
  if not out.cert then
    usage.error('%s is missing; give the certificate, such as cert = "cert.pem"', option(where, "cert"))
  end
  require("luaserve.private").file(out.key or out.cert, "the key " .. (out.key or out.cert))
  return out
end

-- { "h2", "http/1.1" } -> "h2,http/1.1"
local function protocols(where, list)
  local valid = type(list) == "table" and #list > 0
  for _, name in ipairs(valid and list or {}) do
    valid = valid and type(name) == "string" and name:find("^[^,%c]+$") and #name <= 255
  end
  usage.refuse(not valid, list, '%s must be a list of protocol names such as { "http/1.1" }', option(where, "alpn"))
  return table.concat(list, ",")
end

-- The certificate of the option acme, for the core; nil: it is not given. taken: the names of those before it in a list.
local function acme_of(where, given, taken)
  if given.acme == nil then return nil end
  for name in pairs(given) do
    if certificate_options[name] or taken and name ~= "acme" then
      usage.error("%s: acme and %s exclude each other: a list of certificates may have both, { { acme = ... }, { cert = ... } }",
        where, tostring(name))
    end
  end
  return require("luaserve.acme").read(option(where, "acme"), given.acme, taken or {})
end

-- { { cert =, key = }, ... } -> a list of certificates for the core. `named`: the options beside them.
local function certificates(where, list, named, may_acme)
  local out, taken = {}, {}
  for name in pairs(certificate_options) do
    if named[name] ~= nil then usage.error("%s is a list of certificates; put %s into one of them", where, name) end
  end
  for i, one in ipairs(list) do
    local place = string.format("%s%s[%d]", where, where:find(": ", 1, true) and "" or ": options", i)
    usage.check(one, "table", '%s must be a table such as { cert = "cert.pem", key = "key.pem" }', place)
    out[i] = may_acme and acme_of(place, one, taken) or check_cert(place, take(place, one, one_certificate))
  end
  return out
end

-- `spoken`: the protocols of the listener, separated by commas. A client that has negotiated one sends nothing else.
local function check_http_names(where, list, spoken)
  local names = { ["http/1.0"] = true }
  for name in spoken:gmatch("[^,]+") do names[name] = true end
  for _, name in ipairs(list) do
    if name == "h2" and not names.h2 then
      usage.error('%s names "h2", but http2 = false, or this build has no HTTP/2', option(where, "alpn"))
    elseif not names[name] then
      usage.error("%s names %s, which ls.listen does not speak; it speaks %s", option(where, "alpn"), usage.quote(name),
        (spoken:gsub("[^,]+", '"%0"'):gsub(",", " and ")))
    end
  end
end

-- The options of a server -> the table for the core. `alpn`: as for tls.read.
local function server_settings(where, given, tables, alpn)
  local list, named = {}, {}
  for name, value in pairs(given) do
    if math.type(name) == "integer" and name >= 1 and name <= #given then list[name] = value else named[name] = value end
  end
  local listens = tables == listener_calls
  if #list > 0 then list = certificates(where, list, named, listens) end
  if #list > 0 and named.acme ~= nil then usage.error("%s is a list of certificates; put acme into one of them", where) end
  local out = take(where, named, tables)
  out.alpn = alpn
  if given.alpn ~= nil then
    out.alpn = protocols(where, given.alpn)
    if alpn then check_http_names(where, given.alpn, alpn) end
  end
  if out.verify and not out.ca then usage.error("%s needs client_ca", option(where, "verify")) end
  out.verify = out.ca and (out.verify == "optional" and 1 or 2)
  if #list == 0 and listens then list = { acme_of(where, named) } end
  if #list == 0 then
    list = { { cert = out.cert, key = out.key, password = out.password } }
    check_cert(where, list[1])
    out.cert, out.key, out.password = nil, nil, nil
  end
  return table.move(list, 1, #list, 1, out)
end

-- The value of `tls` -> the table for the core.
local function settings_of(fname, given, alpn)
  local where = fname .. ": tls"
  if given == "self-signed" then return { self_signed = true, alpn = alpn } end
  if type(given) ~= "table" then usage.error("%s must be %s; got %s", where, tls_forms, usage.quote(given)) end
  local secret = given.ticket_secret
  if secret ~= nil then
    if given.tickets then usage.error("%s: tickets and ticket_secret exclude each other", where) end
    require("luaserve.redis_tickets").share(option(where, "ticket_secret"), secret)
  end
  local out = server_settings(where, given, listener_calls, alpn)
  out.ticket_secret, out.keyring = nil, secret and true
  return out
end

-- The options of a client -> the table for the core.
local function client_settings(where, given, tables)
  local out = take(where, given, tables)
  if out.cert or out.key or out.password then check_cert(where, out) end
  if given.alpn ~= nil then out.alpn = protocols(where, given.alpn) end
  return out
end

-- client(fname, given) -> the table for the core; nil for false, which means no TLS. Raises.
function tls.client(fname, given)
  local where = fname .. ": tls"
  if given == false then return nil end
  if given == true then given = {} end
  usage.check(given, "table", '%s must be true or a table such as { ca = "ca.pem" }', where)
  return client_settings(where, given, tls.calls["ls.connect: tls"])
end

local starttls_forms = 'a table: sock:starttls{ server_name = "example.org" } for a client, '
  .. 'sock:starttls{ server = true, cert = "cert.pem", key = "key.pem" } for a server'

-- starttls(given) -> the table for the core. Raises.
function tls.starttls(given)
  local where = "sock:starttls"
  if type(given) ~= "table" then usage.error("%s takes %s; got %s", where, starttls_forms, usage.quote(given)) end
  local server = options.read(where, "server", given.server or false, starttls_only.server)
  local other = server and client_only or server_only
  for name in pairs(given) do
    if other[name] then
      usage.error("%s is an option of a %s; this call has%s server = true", option(where, name),
        server and "client" or "server", server and "" or " no")
    elseif type(name) == "string" then
      options.check_names(where, { [name] = true }, options.merged(tls.calls[where]))
    end
  end
  local tables = { certificate_options, shared, server and server_only or client_only, starttls_only }
  local out = (server and server_settings or client_settings)(where, given, tables)
  if not server and not out.server_name and not out.insecure then
    usage.error("%s is missing: the name that the certificate of the server must have", option(where, "server_name"))
  end
  return out
end

local function networks(fname, name, list, core)
  usage.refuse(type(list) ~= "table" or #list == 0 or not usage.is_list(list), list,
    '%s: %s must be a list of addresses and networks such as { "127.0.0.1", "10.0.0.0/8" }', fname, name)
  for i, item in ipairs(list) do
    usage.refuse(type(item) ~= "string" or not core.is_network(item), item,
      '%s: %s[%d] must be an address or a network such as "127.0.0.1", "10.0.0.0/8", "fd00::/8" or "unix:"', fname, name, i)
  end
  return list
end

-- read(fname, given, core, out, alpn): reads tls, trusted, allow, deny and proxy_protocol of the table `given` into `out`, under the
-- names of the core. `alpn`: the protocols of ALPN for a listener of HTTP, separated by commas, unless the site names
-- some; nil: the site's only. Raises.
function tls.read(fname, given, core, out, alpn)
  for _, name in ipairs { "trusted", "allow", "deny" } do
    if given[name] ~= nil then out[name] = networks(fname, name, given[name], core) end
  end
  if out.proxy_protocol and not out.trusted then
    usage.error('%s: proxy_protocol = true needs trusted, the addresses of the proxies, such as trusted = { "127.0.0.1" }',
      fname)
  elseif out.trusted and not out.proxy_protocol and not alpn then
    usage.error("%s: trusted has no effect without proxy_protocol = true", fname)
  end
  if given.tls ~= nil then out.tls = settings_of(fname, given.tls, alpn) end
end

return tls
