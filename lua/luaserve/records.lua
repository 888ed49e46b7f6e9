-- records.lua - whether the listeners name the routes of their requests for records (src/http/record.h): the access log,
-- metrics. It costs a call for each request, so listeners do it only when a record is wanted.

local core = require "luaserve.core"

-- `listeners`: those of ls.listen so far, { index = in the core, settings =, dispatcher =, compile = }.
local records = { wanted = false, listeners = {} }

-- listened(index, settings, dispatcher, compile): a listener was defined. compile() -> its dispatcher, which names the routes.
function records.listened(index, settings, dispatcher, compile)
  local list = records.listeners
  list[#list + 1] = { index = index, settings = settings, dispatcher = dispatcher, compile = not records.wanted and compile or nil }
end

-- want(): all listeners of the site, those before and those after the call, name the routes. Only while the site loads.
function records.want()
  records.wanted = true
  for _, one in ipairs(records.listeners) do
    if one.compile then
      one.dispatcher, one.compile = one.compile(), nil
      core.listen_again(one.index, one.dispatcher.dispatch, one.dispatcher.failed, one.dispatcher.gets)
    end
  end
end

return records
