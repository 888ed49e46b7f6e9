-- report_sample.lua - see report_sample.c, which runs it.

local sample, terminal, page, kind, what = ...
local figures = require "luaserve.stress.figures"
local files = require "luaserve.stress.report_files"
local printed = require "luaserve.stress.report_text"
local samples = require "samples"
local view = require "luaserve.stress.view"

local function show_view(ticks)
  local plan = samples.plan("-d", "10s", "-R", "4000", "http://127.0.0.1:8080/")
  local s, v = samples.open(sample, plan), view.open(plan, terminal())
  for i = 1, ticks do
    samples.work(s, 10000) -- half a second at 4000/s
    if i == ticks then s:error(1, "read", 7) end
    v:draw(s:tick(500000000))
    if not io.read(1) then break end
  end
  v:close()
  v:close()
  print("done")
  return 0
end

if kind == "view" then return show_view(tonumber(what)) end
local plan, result = samples.run(sample, kind)
if not plan then error("unknown kind " .. kind) end
local f = figures.make(plan, result)
if what == "text" then
  io.write(printed.head(plan), printed.report(f))
else
  io.write(files[what](f, page))
end
io.flush()
return f.exit
