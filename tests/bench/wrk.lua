-- wrk.lua: one request, or several pipelined as one piece, made once; then the summary as one JSON line.
--   wrk ... -s wrk.lua URL -- DEPTH
-- wrk.init is wrapped, and wrk.request replaced, because a global `request` would be called for every request.
-- luacheck: globals wrk done
local make_defaults = wrk.init

function wrk.init(args)
  make_defaults(args)
  local text = wrk.format():rep(tonumber(args[1]) or 1)
  wrk.request = function() return text end
end

function done(summary)
  local errors = summary.errors
  print(("SUMMARY {\"requests\": %d, \"duration_us\": %d, \"connect\": %d, \"read\": %d, \"write\": %d, "
    .. "\"status\": %d, \"timeout\": %d}"):format(summary.requests, summary.duration, errors.connect, errors.read,
    errors.write, errors.status, errors.timeout))
end
