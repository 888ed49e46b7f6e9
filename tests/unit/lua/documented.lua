-- The sources of the tree and what lua/definitions.lua makes of their comments, once for all tests of them.
local check = require "check"

local documented = { root = (debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or ".") .. "/../../.." }
documented.generator = assert(loadfile(documented.root .. "/lua/definitions.lua"))()

-- read(patterns) -> the texts of the files that match these patterns of the shell, by their paths from the root.
function documented.read(patterns)
  local list, pipe = {}, assert(io.popen("cd '" .. documented.root .. "' && ls " .. patterns))
  for path in pipe:lines() do list[#list + 1] = path end
  check.equal(pipe:close(), true)
  return documented.generator.read(documented.root, list)
end

documented.sources = documented.read(
  "src/script/bind/*.c src/script/bind/*/*.c lua/luaserve/*.lua lua/luaserve/test/*.lua lua/docs/reference/module.md src/luaserve.h")
documented.files, documented.model = documented.generator.generate(documented.sources)

return documented
