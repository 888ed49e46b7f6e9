-- values.lua - the data of pages.lua and peers.lua: runs in Lua 5.4 and LuaJIT.
local values = {}

-- The 20 variables and 50 rows of views/page.html.
function values.page()
  local page = { rows = {} }
  for n = 1, 20 do
    local text = "value " .. n .. (n % 5 == 0 and " <b> & more" or " of this page")
    page["value" .. n] = n % 4 == 0 and n * 7 or text
  end
  for n = 1, 50 do
    page.rows[n] = { id = n, name = "item " .. n .. (n % 10 == 0 and " & <others>" or ""), price = n * 3, stock = n % 7 }
  end
  return page
end

return values
