-- Command lines: the parser, the suggestions, and the text of --help. test_stress_options.lua tests the kinds of values.

local check = require "check"
local command = require "luaserve.command"
local help = require "luaserve.command.help"

local tests = {}

local spec = {
  name = "bake",
  title = "make a cake",
  usage = { "[options] CAKE", "--list" },
  about = "A first paragraph, which is long enough to be wrapped because its words do not fit into one line of the "
    .. "terminal, whatever.\n\n  an indented one\n  stays",
  options = {
    "Heat", { "-t, --temperature N", command.whole(50, 250), "degrees" }, { "--fan", nil, "use the fan" }, "Dough",
    { "--add WHAT", command.matching(".", "a thing"), "one more; repeat it", many = "things", most = 2 },
    { "--an-option-with-a-long-name FILE", command.file, "its text is on the next line",
      once = true },
    { "-e CODE", command.matching("", "a text"), "the last option", ends = true },
    { "-h, --help", nil, "print this text" },
  },
  notes = "The end.",
}

local function parse(...) return command.parse(spec, { ... }) end

function tests.values_and_words()
  local values, words, at = parse("-t", "200", "sponge", "--fan", "--add=flour", "--add", "eggs", "x")
  check.equal(values, { temperature = 200, fan = true, add = { "flour", "eggs" } })
  check.equal({ words, at }, { { "sponge", "x" }, 9 })
  check.equal({ parse("-t200") }, { { temperature = 200 }, {}, 2 })
  check.equal({ parse("--temperature=100", "--temperature", "60") }, { { temperature = 60 }, {}, 4 })
  check.equal({ parse("a", "--", "--fan") }, { {}, { "a" }, 3 })
  check.equal({ parse("-", "--fan") }, { { fan = true }, { "-" }, 3 })
  check.equal({ parse("-e", "code", "--fan") }, { { e = "code" }, {}, 3 })
  check.equal(parse("--help", "--nonsense"), { help = true })
  check.equal({ parse() }, { {}, {}, 1 })
end

function tests.the_first_word_may_end_the_options()
  local first = { usage = {}, options = spec.options, first_word_ends = true }
  check.equal({ command.parse(first, { "--fan", "cake", "--fan" }) }, { { fan = true }, {}, 2 })
  check.equal({ command.parse(first, { "--fan", "--", "cake" }) }, { { fan = true }, {}, 3 })
  check.equal({ command.parse(first, { "-", "x" }) }, { {}, {}, 1 })
end

function tests.errors()
  for _, case in ipairs {
    { { "-t", "20" }, '-t: invalid value "20": must be a number from 50 to 250' },
    { { "-t20" }, '-t: invalid value "20": must be a number from 50 to 250' },
    { { "--temperature=x" }, '--temperature: invalid value "x": must be a number from 50 to 250' },
    { { "--temperature" }, "missing value of --temperature: a number from 50 to 250" },
    { { "--fan=on" }, "--fan takes no value" },
    { { "--add", "1", "--add", "2", "--add", "3" }, "more than 2 things" },
    { { "--tmperature", "5" }, "unknown option --tmperature; did you mean --temperature?\nluaserve bake --help lists the "
      .. "options" },
    { { "--temp=5" }, "unknown option --temp; did you mean --temperature?\nluaserve bake --help lists the options" },
    { { "-fan" }, "unknown option -fan; did you mean --fan?\nluaserve bake --help lists the options" },
    { { "--ovens" }, "unknown option --ovens\nluaserve bake --help lists the options" },
    { { "--an-option-with-a-long-name=a", "--an-option-with-a-long-name=b" }, "--an-option-with-a-long-name is given twice" },
    { { "-x" }, "unknown option -x\nluaserve bake --help lists the options" },
    { { "--" .. ("x"):rep(100) }, "unknown option --" .. ("x"):rep(100) .. "\nluaserve bake --help lists the options" },
  } do
    check.equal({ parse(table.unpack(case[1])) }, { nil, case[2] })
  end
  check.equal({ command.parse({ usage = {}, options = {} }, { "--x" }) },
    { nil, "unknown option --x\nluaserve --help lists the options" })
end

function tests.kinds()
  local level = command.one_of("debug info")
  check.equal({ level.expected, level.read("info"), level.read("inf"), level.read("debug info") },
    { "one of debug, info", "info", nil, nil })
  check.equal({ command.file.read(""), command.file.read("x") }, { nil, "x" })
  local number = command.whole(0, 1000)
  check.equal({ number.read("0"), number.read("1k"), number.read("1.5"), number.read("1001"), number.read("-0") },
    { 0, 1000, nil, nil, nil })
end

function tests.the_text_of_help()
  check.equal(help(spec), [[
luaserve bake - make a cake

usage: luaserve bake [options] CAKE
       luaserve bake --list

A first paragraph, which is long enough to be wrapped because its words do not fit into one line of the terminal,
whatever.

  an indented one
  stays

Heat
  -t, --temperature N  degrees
      --fan            use the fan

Dough
      --add WHAT       one more; repeat it
      --an-option-with-a-long-name FILE
                       its text is on the next line
  -e CODE              the last option
  -h, --help           print this text

The end.
]])
end

-- The stores that `luaserve new` writes for a program with this text of --version, by path.
local function written(build)
  local stores, out = {}, io.stdout
  rawset(io, "stdout", { write = function() end })
  local status = require("luaserve.command.new").run({
    build = function() return build end,
    files = function()
      return {
        { path = "templates/web/store.dict.lua", bytes = "dicts" },
        { path = "templates/web/store.sqlite.lua", bytes = "SQLite" },
        { path = "templates/api/store.dict.lua", bytes = "of another template" },
        { path = "templates/web/a.lua", bytes = "a" },
      }
    end,
    kind = function() end,
    make_folder = function() return true end,
    write_new = function(path, bytes) stores[path] = bytes return true end,
  }, { "x" })
  rawset(io, "stdout", out)
  check.equal(status, 0)
  return stores
end

function tests.new_writes_the_store_that_the_program_can_run()
  check.equal(written("TLS: not built in\nSQLite: 3.40.1\n"), { ["x/store.lua"] = "SQLite", ["x/a.lua"] = "a" })
  check.equal(written("TLS: OpenSSL\nSQLite: not built in\n"), { ["x/store.lua"] = "dicts", ["x/a.lua"] = "a" })
end

-- The arguments of a command line, by "Parsing C command-line arguments" (Microsoft C documentation).
local function parsed(line)
  local words, word, quoted, i = {}, nil, false, 1
  while i <= #line do
    local slashes, mark = line:match('^(\\*)("?)', i)
    i = i + #slashes + #mark
    if mark == "" then
      local char = line:sub(i, i)
      i = i + 1
      if char == " " and not quoted or char == "" then
        if slashes ~= "" then word = (word or "") .. slashes end
        words[#words + 1], word = word, nil
      else
        word = (word or "") .. slashes .. char
      end
    else
      word = (word or "") .. ("\\"):rep(#slashes // 2)
      if #slashes % 2 == 1 then word = word .. '"' else quoted = not quoted end
    end
  end
  words[#words + 1] = word
  return words
end

function tests.a_command_line_of_windows()
  local service = require "luaserve.command.service"
  check.equal(service.quote "a\\b", "a\\b")
  check.equal(service.quote 'a "b\\"\\', [["a \"b\\\"\\"]])
  local texts = { "" }
  for at = 1, 1365 do -- all of up to 5 of these characters
    for char in ('\\" a'):gmatch "." do texts[#texts + 1] = #texts[at] < 5 and texts[at] .. char or nil end
  end
  check.equal(#texts, 1365)
  for _, text in ipairs(texts) do
    check.equal(parsed(service.quote "p" .. " " .. service.quote(text) .. " " .. service.quote(text)), { "p", text, text })
  end
  check.equal(parsed(service.line("C:\\a b.exe", "n", { threads = 3, log_level = "off" }, "C:\\s.lua", "C:\\s.lua.log", { "", "\t" })),
    { "C:\\a b.exe", "run-as-service", "--name", "n", "--log", "C:\\s.lua.log", "--threads", "3", "--log-level", "off",
      "C:\\s.lua", "", "\t" })
end

return tests
