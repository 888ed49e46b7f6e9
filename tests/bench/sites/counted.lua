-- counted.lua - another site with one thread and no standby threads, which would take the packets of a program that strace or
-- callgrind slows down: the site of the sections counts-*.   luaserve counted.lua SITE PORT ARGUMENTS...
local ls = require "luaserve"

ls.config { threads = 1, threads_max = 1 }
assert(loadfile((...)))(select(2, ...))
