---@meta luaserve.test
-- luacheck: ignore 111 212 241 631

-- Definitions of the test files of `luaserve test` for the Lua language server. lua/docs/testing.md describes them in detail.

---Options of a block or a test.
---@class luaserve.TestOptions
---@field timeout? number the limit of each test, in seconds; default 5

---Defines a block of tests. The function runs at once.
---@class luaserve.TestDescribe
---The tests of the block are reported as skipped.
---@field skip fun(name: string, fn: fun(), options?: luaserve.TestOptions)
---Only blocks and tests with `only` run in this file.
---@field only fun(name: string, fn: fun(), options?: luaserve.TestOptions)
---@overload fun(name: string, fn: fun(), options?: luaserve.TestOptions)
---@overload fun(name: string, options: luaserve.TestOptions, fn: fun())

---Defines a test. The function runs later, in a task; it may wait. The test passes when it returns.
---@class luaserve.TestIt
---The test is reported as skipped.
---@field skip fun(name: string, fn: fun(), options?: luaserve.TestOptions)
---Only blocks and tests with `only` run in this file.
---@field only fun(name: string, fn: fun(), options?: luaserve.TestOptions)
---@overload fun(name: string, fn: fun(), options?: luaserve.TestOptions)
---@overload fun(name: string, options: luaserve.TestOptions, fn: fun())

---The table that `require "luaserve.test"` returns in a test file.
---@class luaserve.Test
---A block of tests.
---@field describe luaserve.TestDescribe
---A test.
---@field it luaserve.TestIt
local test = {}

---A test that is still to be written.
---@param name string
---@param fn? fun()
function test.pending(name, fn) end

---Runs a function once, before the first test of the block.
---@param fn fun()
function test.before(fn) end

---Runs a function once, after the last test of the block.
---@param fn fun()
function test.after(fn) end

---Runs a function before each test of the block and of the blocks in it.
---@param fn fun()
function test.before_each(fn) end

---Runs a function after each test of the block and of the blocks in it.
---@param fn fun()
function test.after_each(fn) end

---Fails unless `got == expected`, or both are tables with equal fields.
---@param got any
---@param expected any
---@param note? string begins the message of a failure
function test.equal(got, expected, note) end

---Fails if the values are equal, as `test.equal` compares them.
---@param got any
---@param unexpected any
---@param note? string
function test.not_equal(got, unexpected, note) end

---Fails unless both are the same object.
---@param got any
---@param expected any
---@param note? string
function test.same(got, expected, note) end

---Fails if the value is nil or false. Returns it.
---@generic T
---@param value? T
---@param note? string
---@return T value
function test.truthy(value, note) end

---Fails unless the value is nil or false.
---@param value any
---@param note? string
function test.falsy(value, note) end

---Fails unless two numbers differ by `tolerance` at most.
---@param got number
---@param expected number
---@param tolerance number
---@param note? string
function test.near(got, expected, tolerance, note) end

---Fails unless the string matches the Lua pattern. Returns the captures.
---@param text string
---@param pattern string
---@param note? string
---@return string|integer ... captures
function test.match(text, pattern, note) end

---Fails unless a string contains the text, or a list the value.
---@param whole string|any[]
---@param part any
---@param note? string
function test.contains(whole, part, note) end

---Fails unless `fn()` raises an error that matches the Lua pattern. Returns the error.
---@param fn fun()
---@param pattern? string
---@param note? string
---@return any err
function test.raises(fn, pattern, note) end

---Fails the test.
---@param message? string
function test.fail(message) end

---Starts a site in a process of its own, with all listeners on free ports of 127.0.0.1. Raises if the site does not load.
---@param site string the file; a relative name begins at the folder of the project
---@param options? luaserve.TestServeOptions
---@return luaserve.TestServer server
function test.serve(site, options) end

---Options of test.serve.
---@class luaserve.TestServeOptions
---@field args? (string|number)[] arguments of the site
---@field threads? integer as `--threads` of the command line

---A site that `test.serve` has started.
---@class luaserve.TestServer
---@field url string of the first `ls.listen`, else of the first listener
---@field port integer of the same
---@field urls string[] of all listeners
local server = {}

---Sends a request. Raises if there is no response.
---@param method string
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:request(method, path, options) end

---Sends a GET request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:get(path, options) end

---Sends a HEAD request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:head(path, options) end

---Sends a POST request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:post(path, options) end

---Sends a PUT request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:put(path, options) end

---Sends a PATCH request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:patch(path, options) end

---Sends a DELETE request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:delete(path, options) end

---Sends a OPTIONS request.
---@param path string
---@param options? luaserve.TestRequest
---@return luaserve.InjectResponse response
function server:options(path, options) end

---Connects to a listener.
---@param index? integer the number of the listener; default 1
---@return luaserve.Sock sock
function server:connect(index) end

---Lets the server drain, and waits for the end of its process.
---@return true? ok
---@return string? message
function server:stop() end

---Options of a request to a server. Give one of `json`, `form` and `body`.
---@class luaserve.TestRequest
---@field headers? luaserve.Headers
---@field json? any sent as JSON
---@field form? table<string, any> sent as a form
---@field body? string
---@field timeout? number seconds without received data; default 60

-- The globals of a test file.
describe = test.describe
it = test.it
pending = test.pending
before = test.before
after = test.after
before_each = test.before_each
after_each = test.after_each

return test
