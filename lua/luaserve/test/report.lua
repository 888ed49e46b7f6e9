-- test/report.lua - prints the results of `luaserve test`: for people, as TAP 14 (https://testanything.org) or as JUnit
-- XML. A reporter has the functions begin(file), result(file, event) and finish(totals); its output goes to write(text).
--
-- event: names (of the blocks and the test), status (pass, fail, error, skip, pending), seconds, line, and for a failure
-- message, lines (the differences), where, excerpt, traceback; `only`, "it.only at FILE:LINE", of a skipped test that did
-- not run because of it. totals: pass, fail, skip, pending, seconds; only, a list of { text, count of such tests }; ci,
-- whether these fail the run.

local report = {}

local function is_failed(event) return event.status == "fail" or event.status == "error" end

local function full_name(event) return table.concat(event.names, " > ") end

local function place(file, event)
  local line = event.line and event.line > 0 and ":" .. event.line or ""
  return (event.where or file) .. line
end

local function escape_byte(c) return string.format("\\x%02X", c:byte()) end

-- utf8(text) -> the text, with \xNN for each byte that is no UTF-8.
function report.utf8(text)
  local out, at = {}, 1
  while at <= #text do
    local _, bad = utf8.len(text, at)
    if not bad then break end
    out[#out + 1] = text:sub(at, bad - 1) .. escape_byte(text:sub(bad, bad))
    at = bad + 1
  end
  return table.concat(out) .. text:sub(at)
end

-- details(event) -> the lines that describe a failure below its message.
local function details(event)
  local out = {}
  for _, line in ipairs(event.lines or {}) do out[#out + 1] = line end
  if event.excerpt then
    out[#out + 1] = ""
    for _, line in ipairs(event.excerpt) do out[#out + 1] = line end
  end
  if event.traceback then
    out[#out + 1] = ""
    out[#out + 1] = "called from:"
    for _, line in ipairs(event.traceback) do out[#out + 1] = "  " .. line end
  end
  return out
end

-- only_lines(totals) -> a line for each file in which `only` has left out tests
local function only_lines(totals)
  local out = {}
  for n, one in ipairs(totals.only) do
    out[n] = string.format("%d test%s did not run because of %s%s", one.count, one.count == 1 and "" or "s", one.text,
      totals.ci and ": this fails the run, because the environment has CI" or "")
  end
  return out
end

local function message_of(event) return event.message or "failed" end

-- ---- for people ----------------------------------------------------------------------------------------------------

local styles = { pass = "32", fail = "31", error = "31", skip = "33", pending = "33", bold = "1", dim = "2" }
local words = { pass = "ok     ", fail = "FAIL   ", error = "FAIL   ", skip = "skip   ", pending = "pending" }
local SLOW_SECONDS = 0.5 -- from here on the time of a test is printed

-- Control characters of names and messages do not reach the terminal.
local function printable(text) return (report.utf8(text):gsub("[\0-\8\11-\31\127]", escape_byte)) end

-- human(write, colours) -> a reporter
function report.human(write, colours)
  local self, failures, shown = {}, {}, {}
  local function style(name, text)
    return colours and "\27[" .. styles[name] .. "m" .. text .. "\27[0m" or text
  end

  function self.begin(file)
    write(style("bold", file) .. "\n")
    shown = {}
  end

  function self.result(file, event)
    if event.only then return end -- finish has their number
    local names = event.names
    for depth = 1, #names - 1 do -- the headings of blocks that have not been printed
      if shown[depth] ~= names[depth] then
        write(string.rep("  ", depth) .. printable(names[depth]) .. "\n")
        shown = table.move(shown, 1, depth - 1, 1, {})
        shown[depth] = names[depth]
      end
    end
    local line = string.rep("  ", #names) .. style(event.status, words[event.status]) .. " " .. printable(names[#names])
    if event.seconds >= SLOW_SECONDS then line = line .. style("dim", string.format(" (%.1f s)", event.seconds)) end
    write(line .. "\n")
    shown = table.move(shown, 1, #names - 1, 1, {})
    if is_failed(event) then failures[#failures + 1] = { file, event } end
  end

  function self.finish(totals)
    for n, failure in ipairs(failures) do
      local file, event = failure[1], failure[2]
      write(string.format("\n%d) %s\n", n, style("bold", place(file, event) .. ": " .. printable(full_name(event)))))
      write("   " .. style("fail", (printable(message_of(event)):gsub("\n", "\n   "))) .. "\n")
      for _, line in ipairs(details(event)) do
        write(line == "" and "\n" or "   " .. printable(line) .. "\n")
      end
    end
    local parts = { totals.pass .. " passed" }
    for _, kind in ipairs { "fail", "skip", "pending" } do
      local word = kind == "fail" and "failed" or kind == "skip" and "skipped" or kind
      if totals[kind] > 0 then parts[#parts + 1] = totals[kind] .. " " .. word end
    end
    local text = string.format("%s in %.2f s", table.concat(parts, ", "), totals.seconds)
    write("\n" .. style(totals.fail > 0 and "fail" or "pass", text) .. "\n")
    for _, line in ipairs(only_lines(totals)) do write(style(totals.ci and "fail" or "skip", printable(line)) .. "\n") end
  end
  return self
end

-- ---- TAP -----------------------------------------------------------------------------------------------------------

local yaml_escapes = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\" }

local function yaml_string(text)
  return '"' .. report.utf8(text):gsub('[%c"\\]', function(c) return yaml_escapes[c] or escape_byte(c) end) .. '"'
end

-- A description: "#" would begin a directive, a line break the next test point.
local function tap_text(text)
  return (report.utf8(text):gsub("[\\#]", "\\%0"):gsub("%c", " "))
end

-- tap(write) -> a reporter
function report.tap(write)
  local self, count = {}, 0
  write("TAP version 14\n")

  function self.begin(file) write("# " .. tap_text(file) .. "\n") end

  function self.result(file, event)
    count = count + 1
    local bad = is_failed(event) or event.status == "pending"
    local directive = event.status == "skip" and " # SKIP" or event.status == "pending" and " # TODO" or ""
    if event.only then directive = directive .. " " .. tap_text(event.only) end
    write(string.format("%s %d - %s%s\n", bad and "not ok" or "ok", count, tap_text(file .. ": " .. full_name(event)),
      directive))
    if not is_failed(event) then return end
    write("  ---\n  message: " .. yaml_string(message_of(event)) .. "\n  severity: " .. event.status .. "\n")
    write("  at: " .. yaml_string(place(file, event)) .. "\n")
    local lines = details(event)
    if #lines > 0 then
      write("  details:\n")
      for _, line in ipairs(lines) do write("    - " .. yaml_string(line) .. "\n") end
    end
    write("  ...\n")
  end

  function self.finish(totals)
    write(string.format("1..%d\n# %d passed, %d failed, %d skipped, %d pending\n", count, totals.pass, totals.fail,
      totals.skip, totals.pending))
    for _, line in ipairs(only_lines(totals)) do write("# " .. tap_text(line) .. "\n") end
  end
  return self
end

-- ---- JUnit ---------------------------------------------------------------------------------------------------------

local xml_escapes = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&apos;",
  ["\n"] = "\n", ["\t"] = "\t" }

-- xml(text) -> the text for an element. XML 1.0 has no other control characters: they become \xNN, as do bytes that are
-- no UTF-8.
function report.xml(text)
  return (report.utf8(text):gsub("[%c&<>\"']", function(c) return xml_escapes[c] or escape_byte(c) end)
    :gsub("\xef\xbf[\xbe\xbf]", "\\uFFFE")) -- U+FFFE and U+FFFF are no characters of XML
end

-- The text for an attribute, in which a parser turns a line break into a space.
local function xml_attribute(text) return (report.xml(text):gsub("[\n\t]", { ["\n"] = "&#10;", ["\t"] = "&#9;" })) end

-- junit(write) -> a reporter; everything is written at the end
function report.junit(write)
  local self, suites, current = {}, {}, nil
  function self.begin(file)
    current = { name = file, events = {}, seconds = 0, fail = 0, error = 0, skip = 0 }
    suites[#suites + 1] = current
  end

  function self.result(_, event)
    current.events[#current.events + 1] = event
    current.seconds = current.seconds + event.seconds
    local kind = event.status == "pending" and "skip" or event.status
    if current[kind] then current[kind] = current[kind] + 1 end
  end

  local function attributes(pairs_list)
    local parts = {}
    for n = 1, #pairs_list, 2 do
      parts[#parts + 1] = string.format(' %s="%s"', pairs_list[n], xml_attribute(tostring(pairs_list[n + 1])))
    end
    return table.concat(parts)
  end

  local function write_case(file, event)
    local names = table.move(event.names, 1, #event.names - 1, 1, {})
    write("    <testcase" .. attributes { "name", event.names[#event.names],
      "classname", table.concat({ file, table.unpack(names) }, " > "), "file", file, "line", event.line or 0,
      "time", string.format("%.3f", event.seconds) })
    if event.status == "pass" then return write("/>\n") end
    if not is_failed(event) then
      return write(">\n      <skipped" .. attributes { "message", event.only or event.status } .. "/>\n    </testcase>\n")
    end
    local kind = event.status == "fail" and "failure" or "error"
    local text = { place(file, event), message_of(event), table.unpack(details(event)) }
    write(">\n      <" .. kind .. attributes { "message", message_of(event), "type", kind } .. ">")
    write(report.xml(table.concat(text, "\n")) .. "</" .. kind .. ">\n    </testcase>\n")
  end

  function self.finish(totals)
    local sum = { tests = 0, fail = 0, error = 0, skip = 0 }
    for _, suite in ipairs(suites) do
      sum.tests = sum.tests + #suite.events
      for _, kind in ipairs { "fail", "error", "skip" } do sum[kind] = sum[kind] + suite[kind] end
    end
    local function counts(of, tests, seconds)
      return attributes { "tests", tests, "failures", of.fail, "errors", of.error, "skipped", of.skip, "time",
        string.format("%.3f", seconds) }
    end
    write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites' .. counts(sum, sum.tests, totals.seconds) .. ">\n")
    for _, suite in ipairs(suites) do
      write("  <testsuite" .. attributes { "name", suite.name } .. counts(suite, #suite.events, suite.seconds) .. ">\n")
      for _, event in ipairs(suite.events) do write_case(suite.name, event) end
      write("  </testsuite>\n")
    end
    write("</testsuites>\n")
  end
  return self
end

return report
