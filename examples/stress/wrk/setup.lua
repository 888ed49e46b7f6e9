-- setup.lua - each thread has a number and its own counters; done() reads the counters of each thread.
-- luacheck: std luajit, no unused args, globals wrk setup init request response done id responses requests
local threads = {}

function setup(thread)
  thread:set("id", #threads + 1)
  table.insert(threads, thread)
end

function init(args)
  requests = 0
  responses = 0
  print(string.format("thread %d created", id))
end

function request()
  requests = requests + 1
  return wrk.request()
end

function response(status)
  if status == 200 then responses = responses + 1 end
end

function done(summary, latency, rates)
  for _, thread in ipairs(threads) do
    print(string.format("thread %d made %d requests and got %d responses", thread:get("id"), thread:get("requests"),
      thread:get("responses")))
  end
end
