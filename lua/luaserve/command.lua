-- command.lua - command lines. One table describes the options of a command: parse reads a command line by it, help.lua
-- prints it for --help, and manual.lua for the manual page.
--
--   {
--     name = "new",                          "luaserve new"; nil: luaserve itself
--     title = "...",                         of its help; may be nil
--     usage = { "DIR [--template NAME]" },   the forms of the command line
--     about = "...", notes = "...",          paragraphs before and after the options, separated by empty lines; may be nil
--     first_word_ends = true,                the first argument that is no option ends the options; nil: it does not
--     unknown_note = "; ...",                the end of the message about an unknown option; may be nil
--     program = "app",                       the name of the program, if it is not luaserve
--     options = {
--       "A title",                           of the options that follow it
--       { "-c, --connections N", kind, "what the option does" },
--       { "--insecure", nil, "..." },        a switch: no value, no kind
--     },
--   }
--
-- A kind is { expected = "a file name", read = function(text) return value end }: `expected` follows "must be" in
-- messages; nil instead of a value refuses the text, and a second result replaces the message. Further fields of an
-- option: once = true refuses a second value; many = "headers" collects the values in a list of at most 64, or most;
-- ends = true ends the options; key is the name of its value, by default the long name with "_" for "-"; letter is a short
-- form that --help does not show.

local command = {}

local function first_letter(option) return option.letter or option[1]:match("^%-(%a)") end

-- long_name(option) -> "connections" of "-c, --connections N"; nil: it has only a letter
function command.long_name(option) return option[1]:match("%-%-([%w-]+)") end

-- value_name(option) -> "N" of "-c, --connections N"; nil: a switch
function command.value_name(option) return option[1]:match("%-[%w-]+ ([^-].*)$") end

-- key(option) -> the name of its value
function command.key(option)
  return option.key or (command.long_name(option) or first_letter(option)):gsub("%-", "_")
end

-- each(spec): an iterator over its options, without the titles
function command.each(spec)
  local i = 0
  return function()
    repeat i = i + 1 until type(spec.options[i]) ~= "string"
    return spec.options[i]
  end
end

local function program_name(spec) return spec.program or spec.name and "luaserve " .. spec.name or "luaserve" end
command.program_name = program_name

command.help_option = { "--help", nil, "print the options", letter = "h" }

-- help(spec) -> 0; prints the text of --help.
function command.help(spec)
  io.stdout:write(require("luaserve.command.help")(spec))
  return 0
end

-- What follows the reason why a control socket cannot be reached.
command.CONTROL_HINT = "; the server must run, with luaserve --control PATH"

-- fail(spec, message [, status]) -> the exit status, by default that of a wrong command line; prints the message.
function command.fail(spec, message, status)
  io.stderr:write(program_name(spec), ": ", message, "\n")
  return status or 2
end

-- printable(text) -> the text with its control characters but tab and newline as \027
function command.printable(text)
  return (text:gsub("[%c\127]", function(c) return c ~= "\n" and c ~= "\t" and string.format("\\%03d", c:byte()) or nil end))
end

-- unexpected(spec, word) -> the message about an argument that the command does not take
function command.unexpected(spec, word)
  return string.format('unexpected argument "%s"; usage: %s %s', word, program_name(spec), spec.usage[1])
end

-- ---- kinds ---------------------------------------------------------------------------------------------------------

local steps = { [""] = 1, k = 1e3, K = 1e3, M = 1e6, G = 1e9 }

-- count("20k") -> 20000.0: a number that may end in k, M or G, steps of 1000; nil for another text.
function command.count(text)
  local number, step = text:match("^([%d.][%d.eE+-]*)([kKMG]?)$")
  number = tonumber(number)
  if not number or number >= math.huge then return nil end
  return number * steps[step]
end

local units = { [""] = 1e9, s = 1e9, ms = 1e6, us = 1e3, m = 60e9, h = 3600e9 }

-- time_ns("500ms") -> 500000000: units us, ms, s, m and h, without one seconds; nil for another text.
function command.time_ns(text)
  local number, unit = text:match("^([%d.][%d.eE+-]*)(%a*)$")
  number = tonumber(number)
  if not number or not units[unit] or number * units[unit] > 1e18 then return nil end
  return math.floor(number * units[unit] + 0.5)
end

-- whole(least, most, expected): a whole number; it may end in k, M or G.
function command.whole(least, most, expected)
  return {
    expected = expected or string.format("a number from %d to %d", least, most),
    read = function(text)
      local number = math.tointeger(command.count(text))
      return number and number >= least and number <= most and number or nil
    end,
  }
end

-- matching(pattern, expected): a text that matches the pattern
function command.matching(pattern, expected)
  return { expected = expected, read = function(text) return text:find(pattern) and text or nil end }
end

command.file = command.matching(".", "a file name")

-- one_of("info warn", expected): one of these words
function command.one_of(words, expected)
  return {
    expected = expected or "one of " .. words:gsub(" ", ", "),
    read = function(text)
      for word in words:gmatch("%S+") do if word == text then return text end end
    end,
  }
end

-- ---- the command line ----------------------------------------------------------------------------------------------

-- suggest(name, known) -> the key of the table `known` that begins with the name, or the most similar one; or nil
function command.suggest(name, known)
  local others, longer = {}, nil
  for other in pairs(known) do
    if other:sub(1, #name) == name and #name > 1 and (not longer or other < longer) then longer = other end
    others[other:gsub("%-", "_")] = other
  end
  if longer then return longer end
  return others[require("luaserve.names").nearest(name:gsub("%-", "_"), others)]
end

local function unknown(spec, name)
  local known = {}
  for option in command.each(spec) do known[command.long_name(option) or ""] = true end
  local bare = name:gsub("^%-+", "")
  local near = #bare > 2 and command.suggest(bare, known)
  return string.format("unknown option %s%s%s\n%s --help lists the options", name,
    near and "; did you mean --" .. near .. "?" or "", spec.unknown_note or "", program_name(spec))
end

-- The option of a word such as "--rate=5", "--rate" or "-c64", its name in the word, and the value in the word.
local function find(spec, word)
  local long, value = word:match("^%-%-([^=]+)(.*)$")
  for option in command.each(spec) do
    if long and command.long_name(option) == long then
      return option, "--" .. long, value ~= "" and value:sub(2) or nil
    elseif not long and first_letter(option) == word:sub(2, 2) then
      return option, word:sub(1, 2), #word > 2 and word:sub(3) or nil
    end
  end
end

-- read(option, name, text, values) -> true, or nil and a message. Reads one value of the option, which messages call
-- `name`, and stores it.
function command.read(option, name, text, values)
  local kind, key = option[2], command.key(option)
  local value, why = kind.read(text)
  if value == nil then
    return nil, why or string.format("%s: invalid value \"%s\": must be %s", name, text, kind.expected)
  end
  if not option.many then
    values[key] = value
    return true
  end
  local list, most = values[key] or {}, option.most or 64
  if #list == most then return nil, string.format("more than %d %s", most, option.many) end
  list[#list + 1] = value
  values[key] = list
  return true
end

-- parse(spec, arguments) -> values, words, at | nil, message. values: the values of the options by their keys; words: the
-- other arguments up to "--"; at: the index after "--", or of the first word if that ends the options. --help ends the
-- reading.
function command.parse(spec, arguments)
  local values, words, at = {}, {}, 1
  while at <= #arguments do
    local word = arguments[at]
    if word == "--" then return values, words, at + 1 end
    if word:sub(1, 1) ~= "-" or word == "-" then
      if spec.first_word_ends then break end
      words[#words + 1] = word
    else
      local option, name, value = find(spec, word)
      if not option then return nil, unknown(spec, word:match("^[^=]+")) end
      if not command.value_name(option) then
        if value then return nil, name .. " takes no value" end
        values[command.key(option)] = true
      else
        if not value then
          at = at + 1
          value = arguments[at]
          if not value then return nil, string.format("missing value of %s: %s", name, option[2].expected) end
        end
        if option.once and values[command.key(option)] then return nil, name .. " is given twice" end
        local good, why = command.read(option, name, value, values)
        if not good then return nil, why end
      end
      if values.help or option.ends then return values, words, at + 1 end
    end
    at = at + 1
  end
  return values, words, at
end

return command
