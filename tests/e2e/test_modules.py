"""A Lua module written in C (module/greeting.c) that a site loads with require: it finds the lua_* functions in the
program."""
import os

from harness import E2E, LUASERVE

SITE = r"""
package.cpath = [[@MODULES@/?.so;@MODULES@/?.dll]]
local ls = require "luaserve"
local greeting = require "greeting"
local app = ls.app()
app:get("/hello/:name", function(req) return greeting.hello(req.params.name) end)
app:get("/call", function() return greeting.call(function() return "from Lua" end) end)
app:get("/raises", function() return greeting.call(function() error("raised through C", 0) end) end)
app:get("/usage", function() return greeting.hello({}) end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""


class Modules(E2E):
    SITE = SITE.replace("@MODULES@", os.path.join(os.path.dirname(LUASERVE), "tests").replace("\\", "/"))

    def test_a_function_of_the_module_uses_its_arguments(self):
        self.assertEqual(self.get("/hello/ada").body, b"hello, ada")

    def test_the_module_calls_a_function_of_the_site(self):
        self.assertEqual(self.get("/call").body, b"from Lua")

    def test_an_error_passes_through_the_module(self):
        self.assertEqual(self.get("/raises").status, 500)
        self.server.wait_log("raised through C")

    def test_a_wrong_argument_of_the_module_is_an_error_of_the_handler(self):
        self.assertEqual(self.get("/usage").status, 500)
        self.server.wait_log(r"bad argument #1 to .hello. \(string expected, got table\)")
