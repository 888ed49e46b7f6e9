-- args.lua - requests the paths of the command line in turn:  ... URL -- /a /b /c
-- luacheck: std luajit, no unused args, globals wrk init request unpack
local texts, at = {}, 0

function init(args)
  local paths = { unpack(args) }
  if #paths == 0 then paths = { wrk.path } end
  for i, path in ipairs(paths) do texts[i] = wrk.format("GET", path, { ["X-Turn"] = i }) end
end

function request()
  at = at % #texts + 1
  return texts[at]
end
