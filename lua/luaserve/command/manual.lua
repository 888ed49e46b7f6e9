-- command/manual.lua - the lists of options in the manual page (mdoc(7)), from the tables of the commands.

local command = require "luaserve.command"

local COLUMNS = 78

-- A word of a text line: no macro, no escape sequence.
local function plain(word) return (word:gsub("\\", "\\e"):gsub("^[.']", "\\&%0"):gsub("%-%-", "\\-\\-")) end

local function flag(name) return "Fl " .. name:sub(2) end

-- The argument of an option: "Ar n" of "N", "Cm on | off" of "on|off".
local function argument(name)
  return name:find("^%u+$") and "Ar " .. name:lower() or "Cm " .. name:gsub("|", " | ")
end

-- The macro of a word that names an option or the value of this one, and the punctuation after it; nil: another word.
local function macro(word, value)
  local core, rest = word:match("^(.-)([).,;:]*)$")
  local punctuation = rest:gsub(".", " %0")
  if core:find("^%-%-?%a[%w-]*$") then return "." .. flag(core) .. punctuation end
  if core == value then return "." .. argument(core) .. punctuation end
end

-- A text in lines: a sentence begins a line, and each macro is one.
local function lines_of(text, value)
  local lines, line = {}, nil
  local function flush()
    lines[#lines + 1] = line
    line = nil
  end
  text = text:gsub("^%l", string.upper) .. (text:find("[.]$") and "" or ".")
  for word in text:gmatch("%S+") do
    local as_macro = macro(word, value)
    if as_macro then
      flush()
      lines[#lines + 1] = as_macro
    elseif line and #line + 1 + #word <= COLUMNS then
      line = line .. " " .. plain(word)
    else
      flush()
      line = plain(word)
    end
    if line and word:find("[.][)]?$") then flush() end
  end
  flush()
  return table.concat(lines, "\n")
end

local function item(option)
  local value, names = command.value_name(option), {}
  for name in option[1]:gmatch("%-%-?%a[%w-]*") do
    names[#names + 1] = flag(name) .. (value and " " .. argument(value) or "")
  end
  return ".It " .. table.concat(names, " , ") .. "\n" .. lines_of(option[3], value) .. "\n"
end

-- list(spec, only) -> the options of a command; a title is a subsection. only: "" or the one option to list.
local function list(spec, only)
  local out, open = {}, false
  for _, option in ipairs(spec.options) do
    if only ~= "" and option[1]:match("%S+") ~= only then
      goto continue
    elseif type(option) == "string" or not open then
      if open then out[#out + 1] = ".El\n" end
      if type(option) == "string" then out[#out + 1] = ".Ss " .. option .. "\n" end
      out[#out + 1] = ".Bl -tag -width Ds\n"
      open = true
    end
    if type(option) ~= "string" then out[#out + 1] = item(option) end
    ::continue::
  end
  return table.concat(out) .. ".El\n"
end

-- manual(specs, from, to) -> the exit status. Copies a file; each line "@OPTIONS name@" becomes the list of that command,
-- and "@OPTIONS name --option@" the one option.
return function(specs, from, to)
  local input, why = io.open(from or "", "rb")
  local output
  if input then output, why = io.open(to or "", "wb") end
  if not output then
    io.stderr:write("luaserve manual: ", why, "\n")
    return 1
  end
  local page = input:read("a"):gsub("@OPTIONS (%l+) ?(%S*)@\n", function(name, only)
    return list(specs[name], only)
  end)
  input:close()
  local good = output:write(page)
  return output:close() and good and 0 or 1
end
