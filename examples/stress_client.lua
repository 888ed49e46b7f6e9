-- stress_client.lua - concurrent clients: each sends numbered messages, waits for the echo of each, and compares it.
--
--   luaserve examples/echo.lua 7000 quiet      in another terminal
--   luaserve examples/stress_client.lua 127.0.0.1 7000 "hello" 64 1000 [show]
--                                       host      port message threads sends
--
-- A "thread" is a coroutine with its own connection; the threads of the server share all coroutines. It sends
-- "<i>. Thread <t> - <message>". With "show" each echo is printed. At the end: messages per second, latencies, and the
-- number of failures; the exit status is 1 if any message failed.

local ls = require "luaserve"

local host, port, message, threads, sends, show = ...
port, threads, sends = tonumber(port), math.tointeger(tonumber(threads)), math.tointeger(tonumber(sends))
if not (host and port and message and threads and sends) or threads < 1 or sends < 1 or show and show ~= "show" then
  io.stderr:write("usage: luaserve ", arg[0], " HOST PORT MESSAGE THREADS SENDS [show]\n")
  os.exit(1)
end

local latencies, failures, reasons = {}, 0, {}

local function failed(count, why)
  failures = failures + count
  reasons[why] = (reasons[why] or 0) + count
end

local function client(t)
  local sock, err = ls.connect(host, port, { read_timeout = 10 })
  if not sock then return failed(sends, "connect: " .. err) end
  for i = 1, sends do
    local text = i .. ". Thread " .. t .. " - " .. message
    local began = ls.now()
    local ok, why = sock:send(text)
    local echo
    if ok then echo, why = sock:receive(#text) end
    if not echo then
      failed(sends - i + 1, why) -- this message and all later ones
      break
    elseif echo ~= text then
      failed(1, "the echo differs from the message")
    else
      latencies[#latencies + 1] = ls.now() - began
    end
    if show then print(echo) end
  end
  sock:close()
end

local function percentile(p)
  local at = math.max(1, math.ceil(#latencies * p))
  return string.format("%.3f ms", latencies[at] * 1e3)
end

ls.init(function()
  local jobs, began = {}, ls.now()
  for t = 1, threads do jobs[t] = ls.spawn(client, t) end
  for t = 1, threads do jobs[t]:wait() end
  local seconds = ls.now() - began
  table.sort(latencies)
  print(string.format("%d messages in %.3f s: %.0f per second", #latencies, seconds, #latencies / seconds))
  if #latencies > 0 then
    print("latency: median " .. percentile(0.5) .. ", 99 % below " .. percentile(0.99) .. ", longest " .. percentile(1))
  end
  print("failed: " .. failures)
  for why, count in pairs(reasons) do print("  " .. count .. " x " .. why) end
  io.stdout:flush()
  if failures > 0 then os.exit(1) end
  ls.stop()
end)
