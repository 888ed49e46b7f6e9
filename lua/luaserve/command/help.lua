-- command/help.lua - the text of --help, from the table of a command (command.lua).

local command = require "luaserve.command"

local COLUMNS = 116
local LEFT_MAX = 28 -- a longer option has its text on the next line

-- The text in lines of at most `columns`; the lines after the first are indented by `indent`.
local function wrap(text, columns, indent)
  local lines, line = {}, nil
  for word in text:gmatch("%S+") do
    if line and #line + 1 + #word <= columns then
      line = line .. " " .. word
    else
      lines[#lines + 1] = line
      line = word
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. (" "):rep(indent))
end

-- Paragraphs are wrapped, but for those that are indented.
local function paragraphs(out, text)
  for paragraph in (text .. "\n\n"):gmatch("(.-)\n\n+") do
    out[#out + 1] = "\n" .. (paragraph:find("^ ") and paragraph or wrap(paragraph, COLUMNS, 0)) .. "\n"
  end
end

local function left_of(spec)
  local letters, width, left = false, 0, {}
  for option in command.each(spec) do letters = letters or option[1]:find("^%-%a, ") end
  for option in command.each(spec) do
    left[option] = (letters and option[1]:find("^%-%-") and "      " or "  ") .. option[1]
    if #left[option] <= LEFT_MAX then width = math.max(width, #left[option]) end
  end
  return left, width + 2
end

-- help(spec) -> the text
return function(spec)
  local out, name = {}, command.program_name(spec)
  if spec.title then out[1] = name .. " - " .. spec.title .. "\n\n" end
  for i, form in ipairs(spec.usage) do
    out[#out + 1] = (i == 1 and "usage: " or "       ") .. name .. " " .. form .. "\n"
  end
  if spec.about then paragraphs(out, spec.about) end
  local left, width = left_of(spec)
  if type(spec.options[1]) ~= "string" then out[#out + 1] = "\n" end
  for _, option in ipairs(spec.options) do
    if type(option) == "string" then
      out[#out + 1] = "\n" .. option .. "\n"
    else
      local begin = left[option]
      begin = #begin + 2 <= width and begin .. (" "):rep(width - #begin) or begin .. "\n" .. (" "):rep(width)
      out[#out + 1] = begin .. wrap(option[3], COLUMNS - width, width) .. "\n"
    end
  end
  if spec.notes then paragraphs(out, spec.notes) end
  return table.concat(out)
end
