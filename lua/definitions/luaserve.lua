---@meta luaserve
-- luacheck: ignore 212 241 631

-- Definitions of luaserve for the Lua language server. The reference, lua/docs/reference, describes everything in detail.
-- Times are seconds; a size is a number of bytes or a string such as "64k". A call that fails for a reason outside of the
-- program returns nil, a message and a code.

---A number of bytes, or a string with a unit: `"64k"`, `"1.5m"`, `"10g"`.
---@alias luaserve.Size integer|string

---The code of a failure: the third result of a call that fails.
---@alias luaserve.Code "EACCES"|"EADDRINUSE"|"EADDRNOTAVAIL"|"EAGAIN"|"EBUSY"|"ECANCELED"|"ECERT"|"ECHANGED"|"ECLOSED"|"EEXIST"|"EINVAL"|"EIO"|"EISDIR"|"ELIMIT"|"EMFILE"|"EMSGSIZE"|"ENOENT"|"ENOMEM"|"ENOSPC"|"ENOTSUP"|"EPIPE"|"EPROTO"|"EPROTOTYPE"|"EREFUSED"|"ERESET"|"ESYS"|"ETIMEDOUT"|"ETRUNCATED"|"EUNREACH"

---Bytes to send: strings, numbers, buffers and lists of them.
---@alias luaserve.Data string|number|luaserve.Buffer|luaserve.Data[]

---The value of a header field; a list makes several fields.
---@alias luaserve.Headers table<string, string|number|(string|number)[]>

---Handles a request. It returns a body, a status, a status with a body and header fields, or nothing.
---@alias luaserve.Handler fun(req: luaserve.Request, res: luaserve.Response): ...

---Runs around handlers. `next()` runs the rest of the chain and returns its results.
---@alias luaserve.Middleware fun(req: luaserve.Request, res: luaserve.Response, next: fun(): ...): ...

-- ---- the module ----------------------------------------------------------------------------------------------------

---The table that `require "luaserve"` returns. Reading an unknown name raises an error that suggests the nearest one.
---@class luaserve
---The version of luaserve, such as `"0.1.0"`.
---@field version string
---Encodes and decodes JSON.
---@field json luaserve.Json
---Text for HTML pages.
---@field html luaserve.Html
---Percent-encoding and query strings.
---@field url luaserve.Url
---Writes lines to the log.
---@field log luaserve.Log
local ls = {}

---Makes an app: the routes, middleware and error pages of a site.
---@return luaserve.App app
function ls.app() end

---Serves an app by HTTP at an address. Only while the site loads.
---@param at integer|string|luaserve.ListenOptions a port, `"host:port"`, `"unix:/path"`, or all options in a table
---@param app? luaserve.App
---@param options? luaserve.ListenOptions
function ls.listen(at, app, options) end

---Sets settings of the server and default limits of later listeners. Only while the site loads.
---@param options luaserve.ConfigOptions
function ls.config(options) end

---Registers a hook. Only while the site loads. The events are `"start"`, `"drain"` (the server stops), `"log"` (a response
---was sent) and `"host"` (the C program that luaserve is embedded in has posted `data`). A hook of `"log"` cannot wait.
---@param event "start"|"drain"
---@param fn fun()
---@overload fun(event: "log", fn: fun(req: luaserve.Request, res: luaserve.Response, info: luaserve.LogInfo))
---@overload fun(event: "host", fn: fun(data: string))
function ls.on(event, fn) end

---Runs a function in one Lua state when the server starts. Only while the site loads.
---@param fn fun()
function ls.once(fn) end

---Suspends the task.
---@param seconds number
function ls.sleep(seconds) end

---Starts a task. Not while the site loads.
---@param fn fun(...)
---@param ... any arguments of the function
---@return luaserve.Job job
function ls.spawn(fn, ...) end

---Runs a function later, in a task.
---@param seconds number
---@param fn fun(...)
---@param ... any arguments of the function
---@return luaserve.Timer timer
function ls.after(seconds, fn, ...) end

---Runs a function again and again, in a task.
---@param seconds number
---@param fn fun(...)
---@param ... any arguments of the function
---@return luaserve.Timer timer
function ls.every(seconds, fn, ...) end

---The seconds of a monotonic clock.
---@return number seconds
function ls.now() end

---Makes a buffer: bytes outside of Lua's memory.
---@param ... luaserve.Data
---@return luaserve.Buffer buffer
function ls.buffer(...) end

---Counters of the whole process.
---@return table<string, number> counters
function ls.stats() end

---Begins to drain the server, as SIGTERM does. Not while the site loads.
function ls.stop() end

---The number of the thread that runs the caller, from 1; 0 while the site loads.
---@return integer number
function ls.thread() end

---The number of processors that this process may use.
---@return integer count
function ls.processors() end

---Accepts TCP or Unix connections. The function runs once per connection, in a task; the connection closes when it
---returns. Only while the site loads.
---@param at integer|string|luaserve.TcpOptions a port, `"host:port"`, `"unix:/path"`, or all options in a table
---@param fn? fun(sock: luaserve.Sock)
---@param options? luaserve.TcpOptions
function ls.tcp(at, fn, options) end

---Connects by TCP or to a Unix socket. Waits. Not while the site loads.
---@param host string|luaserve.ConnectOptions a host, `"host:port"`, `"unix:/path"`, or all options in a table
---@param port? integer|string|luaserve.ConnectOptions
---@param options? luaserve.ConnectOptions
---@return luaserve.Sock? sock
---@return string? message
---@return luaserve.Code? code
function ls.connect(host, port, options) end

---Connects to a WebSocket server. Waits for the end of the handshake. Not while the site loads.
---@param url string `"ws://host:port/path"`, or `"wss://..."` with TLS
---@param options? luaserve.WebSocketClientOptions
---@return luaserve.WebSocket? ws
---@return string? message
---@return luaserve.Code? code
---@return integer? status of the response, if it was not 101
function ls.websocket(url, options) end

---Receives datagrams. The function runs once per datagram; its result is the reply. Only while the site loads.
---@param at integer|string|luaserve.UdpOptions a port, `"host:port"`, or all options in a table
---@param fn? fun(data: string, peer: luaserve.Peer, info?: luaserve.DatagramInfo): luaserve.Data?
---@param options? luaserve.UdpOptions
---@return luaserve.UdpSocket socket
function ls.udp(at, fn, options) end

---Makes a socket that exchanges datagrams with one peer. Not while the site loads.
---@param host string a host, or `"host:port"`
---@param port? integer|string|luaserve.UdpConnectOptions
---@param options? luaserve.UdpConnectOptions
---@return luaserve.UdpClient? socket
---@return string? message
---@return luaserve.Code? code
function ls.udp_connect(host, port, options) end

---Registers a descriptor to wait for its events. Not while the site loads.
---@param fd integer|luaserve.Socket|file* a descriptor, or an object that has one
---@param events string names separated by spaces, commas or `|`: `"in"`, `"out"`, `"hangup"`, `"err"`
---@param options? luaserve.NotifyOptions
---@return luaserve.Notify? n
---@return string? message
---@return luaserve.Code? code
function ls.notify(fd, events, options) end

---Makes a non-blocking socket.
---@param kind "tcp"|"udp"
---@param family? "ip4"|"ip6"
---@return luaserve.Socket? socket
---@return string? message
---@return luaserve.Code? code
function ls.socket(kind, family) end

---Joins a directory and a path that a client sent. The result is below the directory.
---@param directory string
---@param path string
---@return string? path
---@return string? message
---@return luaserve.Code? code
function ls.safe_join(directory, path) end

---Finds the dict of this name, or makes it: a table that all Lua states share, and that survives a reload.
---@param name string
---@param options? luaserve.DictOptions
---@return luaserve.Dict dict
function ls.dict(name, options) end

---Finds the channel of this name, or makes it: a queue of values between tasks of all Lua states.
---@param name string
---@param options? luaserve.ChannelOptions
---@return luaserve.Channel channel
function ls.channel(name, options) end

---Finds the semaphore of this name, or makes it: permits that tasks of all Lua states share.
---@param name string
---@param permits integer
---@return luaserve.Semaphore semaphore
function ls.semaphore(name, permits) end

---Sends a message to all subscribers of a topic, in all Lua states. A table is encoded as JSON.
---@param topic string
---@param data string|number|table|luaserve.Buffer
---@param options? "text"|"binary"|luaserve.PublishOptions the kind, or a table
---@return integer? subscribers
---@return string? message
---@return luaserve.Code? code
function ls.publish(topic, data, options) end

---Calls the function for each message of a topic, one at a time and in order, in this Lua state.
---@param topic string
---@param fn fun(data: string, topic: string)
---@return luaserve.Subscription? subscription
---@return string? message
---@return luaserve.Code? code
function ls.subscribe(topic, fn) end

---The topics and their numbers of subscribers; with a prefix, those that begin with it.
---@param prefix? string
---@return table<string, integer> topics
function ls.topics(prefix) end

---Encodes and decodes JSON (RFC 8259).
---@class luaserve.Json
---`null` in JSON, in both directions. Compare with `==`.
---@field null lightuserdata
---A value that is encoded as `[]`.
---@field empty_array table
local json = {}

---To JSON. Raises for a value that JSON cannot hold.
---@param value any
---@return string text
function json.encode(value) end

---From JSON.
---@param text string|luaserve.Buffer
---@return any value
---@return string? message
function json.decode(text) end

---Marks a table as an array, so that it is `[]` when it is empty. Returns the table.
---@generic T: table
---@param t T
---@return T t
function json.array(t) end

---Text for HTML pages.
---@class luaserve.Html
local html = {}

---Replaces `&`, `<`, `>`, `"` and `'` by references.
---@param text string|number
---@return string text
function html.escape(text) end

---Percent-encoding and query strings.
---@class luaserve.Url
local url = {}

---Percent-encodes all bytes but letters, digits and `-`, `.`, `_`, `~`.
---@param text string|number
---@return string text
function url.encode(text) end

---Decodes percent-encoding. A `+` stays.
---@param text string
---@return string? text
---@return string? message
---@return luaserve.Code? code
function url.decode(text) end

---Makes a query string. The names are sorted; a list repeats its name.
---@param t table<string, string|number|boolean|(string|number|boolean)[]>
---@return string query
function url.query(t) end

---Writes lines to the log.
---@class luaserve.Log
local log = {}

---Writes a line of level debug, with the arguments as `print` shows them.
---@param ... any
function log.debug(...) end

---Writes a line of level info.
---@param ... any
function log.info(...) end

---Writes a line of level warn.
---@param ... any
function log.warn(...) end

---Writes a line of level error.
---@param ... any
function log.error(...) end

---What a hook of the event `"log"` receives.
---@class luaserve.LogInfo
---@field status integer status of the response
---@field bytes integer bytes of the body that were passed to the connection
---@field duration number seconds from the start of the handler to the end of the response

-- ---- options -------------------------------------------------------------------------------------------------------

---Limits of HTTP connections: of ls.listen, and of ls.config for later listeners.
---@class luaserve.HttpLimits
---@field max_head? luaserve.Size bytes of the request head; default "16k"; then 431
---@field max_target? luaserve.Size bytes of the request target; default "8k"; then 414
---@field max_fields? integer header fields of a request; default and maximum 100; then 431
---@field max_body? luaserve.Size|false bytes of a request body; default "8m", false: no limit; then 413
---@field head_timeout? number seconds until the head is complete; default 10; then 408
---@field body_grace? number seconds in which a body may be slower than min_body_rate; default 10
---@field min_body_rate? luaserve.Size lowest rate of a body in bytes per second; default 256; then 408
---@field idle_timeout? number seconds between two requests of a connection; default 75
---@field send_timeout? number seconds in which the client accepts no byte; default 30
---@field min_send_rate? luaserve.Size lowest rate in bytes per second at which the client accepts a response; default 256
---@field max_unread? luaserve.Size bytes of a body that the server discards to keep the connection; default "64k"
---@field write_ahead? luaserve.Size bytes that res:write queues before it waits; default "64k"
---@field linger? number seconds for which the server reads on after an error response; default 2

---Options of listeners, of ls.listen and ls.tcp.
---@class luaserve.Address
---@field port? integer|string port 0 is a free one; required without path
---@field host? string an address, "*" or "unix:/path"; default: the loopback interface
---@field path? string file of a Unix socket
---@field mode? string|integer permissions of the Unix socket, such as "0660"
---@field owner? string owner of the Unix socket: "user", "user:group" or ":group"
---@field tls? luaserve.TlsOptions|luaserve.TlsOptions[]|"self-signed" serves TLS
---@field handshake_timeout? number seconds from the accept to the end of the TLS handshake; default 10
---@field max_handshakes? integer handshakes at a time that hold memory
---@field proxy_protocol? boolean proxies in `trusted` send a PROXY header
---@field trusted? string[] addresses and networks of the proxies, such as "10.0.0.0/8"; "unix:"

---Options of ls.listen.
---@class luaserve.ListenOptions: luaserve.Address, luaserve.HttpLimits
---@field app? luaserve.App required in a single table
---@field engine? "http.sys" Windows: the HTTP server of the system
---@field url? string|string[] with http.sys, such as "http://+:8080/"

---Options of ls.config.
---@class luaserve.ConfigOptions: luaserve.HttpLimits
---@field threads? integer threads that run at a time; default: one per processor
---@field threads_max? integer the same with the standby threads
---@field states? integer largest number of Lua states; default: threads_max
---@field max_connections? integer open connections of all listeners; default 65536
---@field max_buffers? luaserve.Size memory of all buffers; default "256m"
---@field max_memory? luaserve.Size memory of each Lua state; default "256m"
---@field max_jobs? integer unfinished jobs of each Lua state; default 10000
---@field max_cpu? number seconds of CPU time of a task between two waits; default 5
---@field drain_timeout? number seconds for requests and tasks to end when the server stops; default 15
---@field accepts_posted? integer accepts of each listener that wait in advance; default 4
---@field backlog? integer connections that the system queues until they are accepted; default 1024
---@field nameservers? string|string[] name servers for ls.connect; default: those of the system

---The certificate of a listener, and how clients use it.
---@class luaserve.TlsOptions
---@field cert? string file of the certificate and its chain (PEM)
---@field key? string file of the private key; default: that of cert
---@field key_password? string password of an encrypted key
---@field client_ca? string file of the certificates that may sign those of clients
---@field verify? "required"|"optional" whether a client may connect without a certificate
---@field min? "1.2"|"1.3" oldest version of TLS; default "1.2"
---@field ciphers? string as openssl-ciphers(1) describes them
---@field alpn? string[] protocols offered by ALPN, the preferred one first
---@field tickets? string file with keys of session tickets, which several machines share

---TLS of a client.
---@class luaserve.TlsClientOptions
---@field ca? string file of trusted certificates (PEM); default: those of the system
---@field server_name? string the name sent to the server, which its certificate must have; default: the host
---@field insecure? boolean accept any certificate
---@field cert? string file of the client's certificate (PEM)
---@field key? string file of its key; default: that of cert
---@field key_password? string password of an encrypted key
---@field alpn? string[] protocols to offer
---@field min? "1.2"|"1.3" oldest version of TLS; default "1.2"
---@field ciphers? string as openssl-ciphers(1) describes them

---Options of sock:starttls: those of the role, and these.
---@class luaserve.StarttlsOptions: luaserve.TlsOptions, luaserve.TlsClientOptions
---@field server? boolean this side is the server
---@field timeout? number seconds for the handshake; default 10

---Limits of a sock.
---@class luaserve.SockLimits
---@field read_timeout? number|false seconds of one receive; default 60
---@field send_timeout? number|false seconds in which the peer accepts no byte; default 60
---@field max_line? luaserve.Size longest line; default "64k"
---@field max_message? luaserve.Size longest result of receive(n) and receive("*a"); default "8m"
---@field write_ahead? luaserve.Size send waits while more bytes are queued; default "256k"
---@field max_queue? luaserve.Size a message of a topic that would make the queue longer closes the connection; default "1m"
---@field keepalive? integer|false idle seconds after which TCP probes the peer; default false

---Options of ls.tcp.
---@class luaserve.TcpOptions: luaserve.Address, luaserve.SockLimits
---@field serve? fun(sock: luaserve.Sock) the function, in a single table
---@field backlog? integer connections that the system queues until they are accepted; default 1024

---Options of ls.connect.
---@class luaserve.ConnectOptions: luaserve.SockLimits
---@field host? string
---@field port? integer|string
---@field path? string file of a Unix socket
---@field connect_timeout? number|false seconds for the lookup, all addresses and the TLS handshake; default 60
---@field tls? boolean|luaserve.TlsClientOptions

---Limits of a WebSocket.
---@class luaserve.WebSocketLimits
---@field max_message? luaserve.Size a longer message ends the connection with 1009; default "1m"
---@field write_ahead? luaserve.Size send waits while more bytes are queued; default "256k"
---@field ping? number|false seconds without any byte of the peer before a ping is sent; default 30
---@field ping_timeout? number further seconds before the connection ends; default 30
---@field message_timeout? number|false seconds from the first byte of a message to its last; default 60
---@field send_timeout? number|false seconds in which the peer accepts no byte; default 60
---@field close_timeout? number seconds for the closing handshake; default 5

---Compression of a WebSocket.
---@class luaserve.WebSocketCompression
---@field context? boolean each message refers to those before; default false
---@field window? integer 9 to 15: the window has 2^window bytes; default 15
---@field min_size? luaserve.Size shorter messages are not compressed; default 256

---Options of ls.websocket.
---@class luaserve.WebSocketClientOptions: luaserve.WebSocketLimits
---@field timeout? number|false seconds for the lookup, the connection, TLS and the handshake; default 10
---@field protocols? string[] subprotocols, the preferred one first
---@field headers? table<string, string|number|(string|number)[]> further fields of the request
---@field origin? string the field Origin, such as "https://example.org"
---@field compress? boolean|luaserve.WebSocketCompression offer to compress messages; default true
---@field tls? true|luaserve.TlsClientOptions for wss://

---Options of UDP sockets.
---@class luaserve.UdpLimits
---@field batch? integer datagrams that one system call receives, 1 to 32; default 32, of ls.udp_connect 8
---@field max_datagram? luaserve.Size longer datagrams are truncated; default 2048
---@field receive_buffer? luaserve.Size of the socket in the system
---@field send_buffer? luaserve.Size of the socket in the system
---@field broadcast? boolean allow sending to broadcast addresses

---Options of ls.udp.
---@class luaserve.UdpOptions: luaserve.UdpLimits
---@field port? integer|string
---@field host? string default: the loopback interface, or the first multicast group
---@field handler? fun(data: string, peer: luaserve.Peer, info?: luaserve.DatagramInfo): luaserve.Data? the function, in a single table
---@field gather? boolean wait up to 20 microseconds under load; default true
---@field reuse? boolean several processes may share the port
---@field multicast? string|luaserve.Multicast a group, or a table

---Options of ls.udp_connect.
---@class luaserve.UdpConnectOptions: luaserve.UdpLimits
---@field multicast? luaserve.Multicast without group

---Multicast of a UDP socket.
---@class luaserve.Multicast
---@field group? string|string[] up to 16 groups of one family
---@field interface? string name or address of a network interface
---@field ttl? integer 1 to 255
---@field loop? boolean sockets of this machine receive what this one sends

---The third argument of a function of ls.udp.
---@class luaserve.DatagramInfo
---@field truncated boolean the datagram was longer than max_datagram

---Options of ls.notify.
---@class luaserve.NotifyOptions
---@field trigger? "level"|"edge" default "level"
---@field oneshot? boolean after one report nothing is reported until n:rearm

---Options of a route.
---@class luaserve.RouteOptions
---@field max_body? luaserve.Size|false largest request body; default: that of the listener

---Options of app:ws.
---@class luaserve.WebSocketRouteOptions: luaserve.WebSocketLimits
---@field protocols? string[] subprotocols that the site supports
---@field origins? "*"|string[] allowed origins; default: that of the server
---@field max_queue? luaserve.Size messages of topics are queued up to this size; default "1m"
---@field overflow? "close"|"skip" what happens above max_queue; default "close"
---@field compress? boolean|luaserve.WebSocketCompression default false

---Functions of app:ws, with the options among them.
---@class luaserve.WebSocketEvents: luaserve.WebSocketRouteOptions
---@field open? fun(ws: luaserve.WebSocket, req: luaserve.Request) after the handshake
---@field message? fun(ws: luaserve.WebSocket, data: string, kind: "text"|"binary")
---@field close? fun(ws: luaserve.WebSocket, code: integer, reason: string) the connection has ended

---Options of app:static.
---@class luaserve.StaticOptions
---@field index? string|false file for a path that ends in a slash; default "index.html"
---@field max_age? number seconds for which caches may use a file; 0: ask each time
---@field immutable? string beginning of the paths of files that never change
---@field precompressed? boolean send app.js.br or app.js.gz in place of app.js
---@field list? boolean a page with the files of a folder without an index
---@field fallback? string the file for paths without a file
---@field dotfiles? boolean serve names that begin with a dot
---@field headers? fun(path: string): luaserve.Headers? header fields for a file

---A request for app:inject.
---@class luaserve.InjectRequest
---@field method? string default "GET"
---@field path? string the request target with its query; default "/"
---@field headers? luaserve.Headers
---@field body? string

---A response of app:inject, and of a server of luaserve.test.
---@class luaserve.InjectResponse
---@field status integer
---@field headers table<string, string> names are found in any case
---@field body string
local inject_response = {}

---Decodes the body. Raises if it is not JSON.
---@return any value
function inject_response:json() end

---Options of res:cookie.
---@class luaserve.CookieOptions
---@field path? string
---@field domain? string
---@field max_age? integer seconds; 0 deletes the cookie
---@field expires? integer seconds since 1970, as os.time()
---@field secure? boolean
---@field http_only? boolean
---@field same_site? "Lax"|"Strict"|"None"

---Options of res:file.
---@class luaserve.FileOptions
---@field type? string media type; default: by the extension
---@field offset? integer first byte to send; default 0
---@field length? integer number of bytes; default: to the end
---@field download? string name of the file for a browser, which then saves it
---@field max_age? number seconds for which a cache may use the response
---@field etag? boolean false: no ETag

---Options of req:json.
---@class luaserve.JsonOptions
---@field object? boolean the body must be a JSON object; another one raises, which gives a 400

---Options of sock:receiveuntil.
---@class luaserve.UntilOptions
---@field inclusive? boolean the result includes the pattern
---@field limit? luaserve.Size most bytes before the pattern; default: max_line

---Options of ls.dict.
---@class luaserve.DictOptions
---@field size? luaserve.Size memory of the dict; default "16m"
---@field evict? boolean remove the entries used least recently when it is full; default true

---Options of ls.publish.
---@class luaserve.PublishOptions
---@field kind? "text"|"binary" "text" must be valid UTF-8; default "text"
---@field retain? boolean keep the message for later subscribers; default false
---@field event? string name of the server-sent event
---@field id? string id of the server-sent event

---Options of ls.channel.
---@class luaserve.ChannelOptions
---@field capacity? integer number of values that it holds; default 1000

-- ---- apps ----------------------------------------------------------------------------------------------------------

---The routes, middleware and error pages of a site.
---@class luaserve.App
local app = {}

---Adds a route for GET.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:get(path, options, fn) end

---Adds a route for POST.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:post(path, options, fn) end

---Adds a route for PUT.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:put(path, options, fn) end

---Adds a route for PATCH.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:patch(path, options, fn) end

---Adds a route for DELETE.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:delete(path, options, fn) end

---Adds a route for HEAD.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:head(path, options, fn) end

---Adds a route for OPTIONS.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:options(path, options, fn) end

---Adds a route for every method that has no other route for this path.
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, fn: luaserve.Handler): luaserve.App
function app:any(path, options, fn) end

---Adds a route for a method by its name, such as "PROPFIND".
---@param method string
---@param path string
---@param options luaserve.RouteOptions
---@param fn luaserve.Handler
---@return luaserve.App app
---@overload fun(self: luaserve.App, method: string, path: string, fn: luaserve.Handler): luaserve.App
function app:route(method, path, options, fn) end

---Adds a route that accepts WebSocket connections.
---@param path string
---@param options luaserve.WebSocketRouteOptions
---@param handler fun(ws: luaserve.WebSocket, req: luaserve.Request)
---@return luaserve.App app
---@overload fun(self: luaserve.App, path: string, handler: (fun(ws: luaserve.WebSocket, req: luaserve.Request))|luaserve.WebSocketEvents): luaserve.App
function app:ws(path, options, handler) end

---Adds middleware, which runs around every handler of the app.
---@param fn luaserve.Middleware
---@param ... luaserve.Middleware
---@return luaserve.App app
function app:use(fn, ...) end

---Adds the routes of another app below a prefix.
---@param prefix string
---@param other luaserve.App
---@return luaserve.App app
function app:mount(prefix, other) end

---Serves the files below a folder.
---@param prefix string
---@param folder string
---@param options? luaserve.StaticOptions
---@return luaserve.App app
function app:static(prefix, folder, options) end

---Sets the function that responds when a handler raised an error. The default status is 500.
---@param fn fun(req: luaserve.Request, res: luaserve.Response, err: any, traceback: string): ...
---@return luaserve.App app
function app:error(fn) end

---Sets the function that responds when no route matches. The default status is 404.
---@param fn luaserve.Handler
---@return luaserve.App app
function app:not_found(fn) end

---Runs a request without a socket, for tests.
---@param request luaserve.InjectRequest
---@return luaserve.InjectResponse? response
---@return string? message
---@return luaserve.Code? code
function app:inject(request) end

-- ---- requests and responses ----------------------------------------------------------------------------------------

---The first argument of a handler. The site may set further names.
---@class luaserve.Request
---@field method string "GET", as the client has sent it
---@field path string the path of the target, as it was sent
---@field target string the whole target
---@field version string "1.1" or "1.0"
---@field params table<string, string> parameters of the route, decoded
---@field query table<string, string> parameters of the query string, decoded; the first of each name
---@field query_all table<string, string[]> the same, with all values of each name
---@field headers table<string, string> header fields; names are found in any case
---@field cookies table<string, string> cookies by name
---@field host string? the Host field, with its port
---@field scheme "http"|"https"
---@field secure boolean whether the scheme is "https"
---@field tls luaserve.TlsInfo? what TLS has negotiated
---@field remote string? address and port of the client
---@field local_addr string? address and port to which the client connected
---@field id string 16 hexadecimal digits, unique in this process
---@field [string] any
local req = {}

---The value of one header field; the name is found in any case.
---@param name string
---@return string? value
function req:header(name) end

---The body as a string. Waits until it is complete.
---@return string? body
---@return string? message
---@return luaserve.Code? code
function req:body() end

---The body as a buffer, without a copy. Waits until it is complete.
---@return luaserve.Buffer? body
---@return string? message
---@return luaserve.Code? code
function req:buffer() end

---The body, decoded from JSON. Waits until it is complete.
---@param options? luaserve.JsonOptions
---@return any value
---@return string? message
---@return luaserve.Code? code
function req:json(options) end

---The fields of an HTML form; of several with one name the first. Waits until the body is complete.
---@return table<string, string>? form
---@return string? message
---@return luaserve.Code? code
function req:form() end

---The fields of an HTML form, with the list of all values of each name. Waits until the body is complete.
---@return table<string, string[]>? form
---@return string? message
---@return luaserve.Code? code
function req:form_all() end

---Iterates over the parts of the body as they arrive.
---@return fun(): luaserve.Buffer? iterator
function req:chunks() end

---The second argument of a handler.
---@class luaserve.Response
---@field sent boolean whether the response has begun
local res = {}

---Sets the status and returns res; without an argument, returns the status.
---@param status integer
---@return luaserve.Response res
---@overload fun(self: luaserve.Response): integer
function res:status(status) end

---Sets a header field. A list makes several fields, nil removes it.
---@param name string
---@param value string|number|(string|number)[]|nil
---@return luaserve.Response res
function res:header(name, value) end

---Adds a cookie.
---@param name string
---@param value string
---@param options? luaserve.CookieOptions
---@return luaserve.Response res
function res:cookie(name, value, options) end

---Sets the Content-Type by an extension or a media type.
---@param name string
---@return luaserve.Response res
function res:type(name) end

---Sends the response with this body.
---@param body? luaserve.Data
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:send(body) end

---Sends a value as JSON.
---@param value any
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:json(value) end

---Sends a page.
---@param text luaserve.Data
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:html(text) end

---Redirects the client.
---@param to string
---@param status? integer default 302
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:redirect(to, status) end

---Sends a part of the body; the response ends when the handler returns. Waits for a slow client.
---@param ... luaserve.Data
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:write(...) end

---Sends what was written, and waits until the system has accepted it.
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:flush() end

---Sends a file. Conditional requests and ranges are answered.
---@param path string
---@param options? luaserve.FileOptions
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function res:file(path, options) end

---The options of res:sse.
---@class luaserve.SseOptions
---@field retry? number seconds that a client waits before it connects again
---@field keepalive? number|false a comment is sent before so many seconds have passed without an event; default 15
---@field max_queue? luaserve.Size above it a message of a topic is not sent; default "1m"
---@field overflow? "close"|"skip" what happens then: the response ends (default), or the message is dropped
---@field headers? table<string, string|number|(string|number)[]>

---A stream of server-sent events.
---@class luaserve.Sse
---@field closed boolean
---@field queued integer bytes that the system has not accepted yet
---@field last_id string? the Last-Event-ID of the request
local sse = {}

---An event of sse:send.
---@class luaserve.SseEvent
---@field event? string|number
---@field id? string|number
---@field data? luaserve.Data|table a table is encoded as JSON
---@field retry? number seconds

---Writes an event. Waits while too much is queued.
---@param event luaserve.Data|luaserve.SseEvent the data, or the fields of the event
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sse:send(event) end

---Writes a comment, which clients ignore.
---@param text string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sse:comment(text) end

---Each message of the topic becomes an event.
---@param topic string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sse:subscribe(topic) end

---No message of the topic that is published later is sent.
---@param topic string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sse:unsubscribe(topic) end

---Waits until the stream has ended.
---@param seconds? number
---@return true? ended
---@return string? message
---@return luaserve.Code? code
function sse:wait(seconds) end

---Completes the response.
---@return true ok
function sse:close() end

---Begins a stream of server-sent events.
---@param options? luaserve.SseOptions
---@return luaserve.Sse? sse
---@return string? message
---@return luaserve.Code? code
function res:sse(options) end

---Takes the connection over from HTTP: responds 101, or to CONNECT with a 2xx. The sock closes when the handler ends.
---@param protocol? string one that the client has asked for; none for CONNECT
---@return luaserve.Sock? sock
---@return string? message
---@return luaserve.Code? code
function res:upgrade(protocol) end

---Closes the connection without the rest of the response.
function res:abort() end

---What TLS has negotiated.
---@class luaserve.TlsInfo
---@field version string "TLSv1.2" or "TLSv1.3"
---@field cipher string such as "TLS_AES_256_GCM_SHA384"
---@field alpn string? the protocol that was negotiated
---@field server_name string? the name that the client has asked for
---@field resumed boolean whether an earlier session was resumed
---@field verified boolean whether the certificate of the peer was checked and accepted
---@field client luaserve.Certificate? of a client with a certificate
---@field server luaserve.Certificate? of a sock that is the client

---A certificate of a peer.
---@class luaserve.Certificate
---@field subject string
---@field issuer string
---@field fingerprint string SHA-256, hexadecimal digits with colons

-- ---- buffers, jobs, timers -----------------------------------------------------------------------------------------

---Bytes outside of Lua's memory. It has `#`, `..`, `==` and methods of strings.
---@class luaserve.Buffer
---@operator len: integer
---@operator concat(string|luaserve.Buffer): string
local buffer = {}

---Appends to the buffer.
---@param ... luaserve.Data
---@return luaserve.Buffer buffer
function buffer:append(...) end

---A part of the bytes, as a buffer without a copy.
---@param i integer
---@param j? integer
---@return luaserve.Buffer part
function buffer:sub(i, j) end

---A copy of the bytes, as a string.
---@return string text
function buffer:tostring() end

---Keeps a chunk beyond its iteration.
---@return luaserve.Buffer buffer
function buffer:keep() end

---As string.byte.
---@param i? integer
---@param j? integer
---@return integer ...
function buffer:byte(i, j) end

---As string.find.
---@param pattern string
---@param init? integer
---@param plain? boolean
---@return integer? first
---@return integer? last
---@return any ... captures
function buffer:find(pattern, init, plain) end

---As string.match.
---@param pattern string
---@param init? integer
---@return any ... captures
function buffer:match(pattern, init) end

---As string.gmatch.
---@param pattern string
---@param init? integer
---@return fun(): string, ...
function buffer:gmatch(pattern, init) end

---As string.gsub.
---@param pattern string
---@param repl string|number|table|function
---@param n? integer
---@return string text
---@return integer count
function buffer:gsub(pattern, repl, n) end

---As string.upper.
---@return string text
function buffer:upper() end

---As string.lower.
---@return string text
function buffer:lower() end

---As string.rep.
---@param n integer
---@param sep? string
---@return string text
function buffer:rep(n, sep) end

---As string.reverse.
---@return string text
function buffer:reverse() end

---As string.len.
---@return integer bytes
function buffer:len() end

---As string.unpack, with the buffer as the data and the format first.
---@param fmt string
---@param pos? integer
---@return any ...
function buffer:unpack(fmt, pos) end

---A task of ls.spawn.
---@class luaserve.Job
local job = {}

---Waits for the job and returns the results of its function. Raises the error of the function. After `timeout` seconds
---it returns nil, a message and "ETIMEDOUT".
---@param timeout? number
---@return any ...
function job:wait(timeout) end

---A timer of ls.after or ls.every.
---@class luaserve.Timer
local timer = {}

---Stops the timer.
function timer:cancel() end

-- ---- sockets -------------------------------------------------------------------------------------------------------

---A TCP or Unix connection.
---@class luaserve.Sock
---@field remote string? address and port of the peer; nil when closed
---@field local_addr string? address and port of this side; nil when closed
---@field tls luaserve.TlsInfo? what TLS has negotiated
---@field queued integer bytes that the system has not yet accepted
---@field ended luaserve.Code? why the last loop of lines or chunks ended
local sock = {}

---Receives a number of bytes, a line ("*l", the default) or everything until the end of the stream ("*a"). After a
---failure `partial` has the bytes that had arrived.
---@param what? integer|"*l"|"*a"|"l"|"a"
---@return string? data
---@return string? message
---@return luaserve.Code? code
---@return string? partial
function sock:receive(what) end

---Waits until data has arrived, and returns it.
---@param max? integer default 65536
---@return string|luaserve.Buffer|nil data
---@return string? message
---@return luaserve.Code? code
function sock:receiveany(max) end

---Receives the bytes before a string, which is dropped.
---@param pattern string 1 to 1024 bytes, not a Lua pattern
---@param options? luaserve.UntilOptions
---@return string? data
---@return string? message
---@return luaserve.Code? code
---@return string? partial
function sock:receiveuntil(pattern, options) end

---Iterates over the lines until the end of the stream or a failure; sock.ended is the reason.
---@return fun(): string? iterator
function sock:lines() end

---Iterates over the data that arrives. A buffer is valid in its iteration only.
---@return fun(): (string|luaserve.Buffer)? iterator
function sock:chunks() end

---Sends data. Waits while more than write_ahead bytes are queued.
---@param ... luaserve.Data
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:send(...) end

---Sends the queued bytes, and waits until the system has accepted them.
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:flush() end

---Closes the sending direction.
---@param direction? "send"
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:shutdown(direction) end

---Changes the time limits, in seconds. nil keeps one, false removes it. The first is for compatibility and has no effect.
---@param connect? number|false
---@param send? number|false
---@param read? number|false
function sock:settimeouts(connect, send, read) end

---Turns TCP keep-alive on (default 60 seconds) or off.
---@param seconds? integer|false
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:setkeepalive(seconds) end

---Changes the connection to TLS. Waits for the handshake. A failure closes the sock.
---@param options luaserve.StarttlsOptions
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:starttls(options) end

---Sends each message of a topic to the peer: its data and a line feed.
---@param topic string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:subscribe(topic) end

---Ends a subscription.
---@param topic string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function sock:unsubscribe(topic) end

---Closes the connection after the queued bytes were sent.
---@return true ok
function sock:close() end

---Closes the connection at once and drops the queued bytes.
function sock:abort() end

---A WebSocket. Other fields than these belong to the site: `ws.user = "ada"`.
---@class luaserve.WebSocket
---@field remote string? address and port of the peer; nil when the connection has ended
---@field tls luaserve.TlsInfo? what TLS has negotiated
---@field protocol string? the subprotocol
---@field closed boolean nothing more can be sent
---@field queued integer bytes that the system has not yet accepted
---@field code integer? of the peer's Close frame, 1005 without one in it, 1006 without a frame; nil before the end
---@field reason string? of the peer's Close frame; nil before the end
---@field [string] any
local ws = {}

---Sends a message. Waits while more than write_ahead bytes are queued. Text must be UTF-8.
---@param data luaserve.Data
---@param kind? "text"|"binary" default "text"
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function ws:send(data, kind) end

---Waits for a message.
---@param timeout? number seconds; default: no limit
---@return string? data
---@return "text"|"binary"|string kind or the message of the error
---@return luaserve.Code? code
function ws:receive(timeout) end

---Iterates over the messages until the connection has ended.
---@return fun(): string?, "text"|"binary" iterator
function ws:messages() end

---Sends a ping.
---@param data? string at most 125 bytes
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function ws:ping(data) end

---Begins the closing handshake. Messages that were queued are sent before.
---@param code? integer default 1000
---@param reason? string at most 123 bytes of UTF-8
---@return true ok
function ws:close(code, reason) end

---Receives the messages of a topic from now on.
---@param topic string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function ws:subscribe(topic) end

---Ends a subscription.
---@param topic string
---@return boolean was_subscribed
function ws:unsubscribe(topic) end

---The socket of ls.udp.
---@class luaserve.UdpSocket
---@field local_addr string? address and port; nil while the site loads
---@field port integer? nil while the site loads
local udp_socket = {}

---Sends a datagram. Not while the site loads.
---@param data luaserve.Data
---@param host string
---@param port integer
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function udp_socket:sendto(data, host, port) end

---Closes the socket.
function udp_socket:close() end

---The sender of a datagram. `==` compares address and socket; `tostring` gives "127.0.0.1:40000".
---@class luaserve.Peer
---@field host string
---@field port integer
local peer = {}

---Sends a datagram to the peer.
---@param data luaserve.Data
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function peer:send(data) end

---The socket of ls.udp_connect.
---@class luaserve.UdpClient
---@field local_addr string? address and port of this side
---@field remote string? address and port of the peer
local udp_client = {}

---Sends a datagram.
---@param data luaserve.Data
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function udp_client:send(data) end

---Waits for a datagram. The second result is `{ truncated = true }` for a datagram that was truncated.
---@param timeout? number
---@return string? data
---@return luaserve.DatagramInfo|string|nil info_or_message
---@return luaserve.Code? code
function udp_client:receive(timeout) end

---Closes the socket.
function udp_client:close() end

---A registration of ls.notify.
---@class luaserve.Notify
local notify = {}

---Waits for events.
---@param timeout? number
---@return table<"in"|"out"|"hangup"|"err", true>? events
---@return string? message
---@return luaserve.Code? code
function notify:wait(timeout) end

---Changes the events, and arms a one-shot registration again.
---@param events? string
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function notify:rearm(events) end

---Ends the registration.
---@return true ok
function notify:remove() end

---A non-blocking socket of ls.socket. A call that would wait returns nil, a message and "EAGAIN".
---@class luaserve.Socket
---@field fd integer the number of the descriptor
---@field local_addr string? address and port
local socket = {}

---Binds the socket to an address; port 0 picks a free one.
---@param host string
---@param port integer
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function socket:bind(host, port) end

---Accepts connections from now on.
---@param backlog? integer default 1024
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function socket:listen(backlog) end

---Takes a connection.
---@return luaserve.Socket? socket
---@return string? host_or_message
---@return integer|luaserve.Code|nil port_or_code
function socket:accept() end

---Connects. After "EAGAIN" wait for "out", then call socket:error().
---@param host string
---@param port integer
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function socket:connect(host, port) end

---Sends; returns the number of bytes that the system has accepted.
---@param data string|luaserve.Buffer
---@return integer? bytes
---@return string? message
---@return luaserve.Code? code
function socket:send(data) end

---Sends a datagram.
---@param data string|luaserve.Buffer
---@param host string
---@param port integer
---@return integer? bytes
---@return string? message
---@return luaserve.Code? code
function socket:sendto(data, host, port) end

---Receives at most `max` bytes; "" at the end of a TCP connection.
---@param max? integer default 65536
---@return string? data
---@return string? message
---@return luaserve.Code? code
function socket:receive(max) end

---Receives a datagram and its sender.
---@param max? integer default 65536
---@return string? data
---@return string? host_or_message
---@return integer|luaserve.Code|nil port_or_code
---@return boolean? truncated
function socket:receivefrom(max) end

---The pending error of the socket, which is cleared; nothing without one.
---@return nil
---@return string? message
---@return luaserve.Code? code
function socket:error() end

---Closes the sending direction.
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function socket:shutdown() end

---Closes the socket.
function socket:close() end

-- ---- shared by all states ------------------------------------------------------------------------------------------

---A table that all Lua states share. `dict[key]`, `pairs(dict)` and `#dict` work as well. A table in it comes out as a copy
---that cannot be changed: store the whole value again.
---@class luaserve.Dict
---@operator len: integer
---@field [string|integer] any
local dict = {}

---The value of a key.
---@param key string|integer
---@return any value
function dict:get(key) end

---Sets the value of a key. nil removes it.
---@param key string|integer
---@param value any
---@param ttl? number seconds after which the entry expires
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function dict:set(key, value, ttl) end

---Sets the value unless the key exists ("EEXIST").
---@param key string|integer
---@param value any
---@param ttl? number
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function dict:add(key, value, ttl) end

---Sets the value if the key exists ("ENOENT").
---@param key string|integer
---@param value any
---@param ttl? number
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function dict:replace(key, value, ttl) end

---Removes a key.
---@param key string|integer
---@return boolean existed
function dict:delete(key) end

---Adds to a number.
---@param key string|integer
---@param by? number default 1
---@param init? number value of a key that does not exist; default 0
---@param ttl? number of a new entry
---@return number? value
---@return string? message
---@return luaserve.Code? code
function dict:incr(key, by, init, ttl) end

---The seconds that an entry has left; false: it does not expire; nil: it does not exist.
---@param key string|integer
---@return number|false|nil seconds
function dict:ttl(key) end

---Sets the time to live; without seconds the entry does not expire any more.
---@param key string|integer
---@param seconds? number
---@return boolean existed
function dict:expire(key, seconds) end

---The keys that string.find finds the pattern in, at most `max`.
---@param pattern? string
---@param max? integer
---@return (string|integer)[] keys
function dict:keys(pattern, max) end

---The number of entries.
---@return integer count
function dict:len() end

---Removes all entries.
function dict:clear() end

---Replaces a value by what a function makes of it, atomically: the function runs again when another state was first.
---@param key string|integer
---@param fn fun(old: any): any
---@param ttl? number
---@return any value
---@return string? message
---@return luaserve.Code? code
function dict:update(key, fn, ttl) end

---Adds values to the front of a list.
---@param key string|integer
---@param ... any
---@return integer? length
---@return string? message
---@return luaserve.Code? code
function dict:lpush(key, ...) end

---Adds values to the end of a list.
---@param key string|integer
---@param ... any
---@return integer? length
---@return string? message
---@return luaserve.Code? code
function dict:rpush(key, ...) end

---Removes the first value of a list.
---@param key string|integer
---@return any value
---@return string? message
---@return luaserve.Code? code
function dict:lpop(key) end

---Removes the last value of a list.
---@param key string|integer
---@return any value
---@return string? message
---@return luaserve.Code? code
function dict:rpop(key) end

---The length of a list.
---@param key string|integer
---@return integer? length
---@return string? message
---@return luaserve.Code? code
function dict:llen(key) end

---The values of a list from one position to another; negative ones count from the end.
---@param key string|integer
---@param first? integer default 1
---@param last? integer default -1
---@return any[]? values
---@return string? message
---@return luaserve.Code? code
function dict:range(key, first, last) end

---What ls.subscribe returns.
---@class luaserve.Subscription
local subscription = {}

---Ends the subscription and drops the messages that wait.
function subscription:remove() end

---A queue of values between tasks of all Lua states.
---@class luaserve.Channel
---@field name string
---@field capacity integer
---@field closed boolean
local channel = {}

---Adds a value. Waits while the channel is full, for at most `timeout` seconds.
---@param value any
---@param timeout? number
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function channel:send(value, timeout) end

---Takes the oldest value. Waits for one, for at most `timeout` seconds.
---@param timeout? number
---@return any value
---@return string? message
---@return luaserve.Code? code
function channel:receive(timeout) end

---Iterates over the values until the channel is closed.
---@return fun(): any iterator
function channel:values() end

---Closes the channel: values that it holds can still be received.
function channel:close() end

---The number of values that it holds.
---@return integer count
function channel:len() end

---Permits that tasks of all Lua states share.
---@class luaserve.Semaphore
---@field name string
---@field permits integer
---@field held integer
local semaphore = {}

---Takes a permit. Waits for one, for at most `timeout` seconds.
---@param timeout? number
---@return true? ok
---@return string? message
---@return luaserve.Code? code
function semaphore:acquire(timeout) end

---Gives a permit back.
function semaphore:release() end

---Runs a function with a permit, which is given back when it ends, and returns its results.
---@param fn fun(...): ...
---@param ... any
---@return any ...
function semaphore:with(fn, ...) end

return ls
