-- template.lua - ls.templates and res:render: pages from files in the syntax of lua-resty-template.
--
-- A template becomes one Lua chunk that appends strings to a buffer. Text and expressions that follow each other are one
-- concatenation, and each line of the chunk has the number of the line of the template, so that messages of Lua name the
-- file and line that the author knows:
--
--     <p>{{name}}</p>          ___[#___+1]="<p>"..___e(name).."</p>\
--     {% if x then %}          "; if x then
--
-- The names in a template are globals of an environment that lasts for one run: what the template assigns, then the
-- values of the page, then `globals`, the functions of `template`, and the globals of the site.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

-- A site may replace the globals.
local concat, find, format, gsub, match, rep, sub = table.concat, string.find, string.format, string.gsub, string.match,
  string.rep, string.sub
local getmetatable, ipairs, load, pairs, rawget, select, setmetatable, tonumber, tostring, type = getmetatable, ipairs, load,
  pairs, rawget, select, setmetatable, tonumber, tostring, type
local getinfo, getlocal = debug.getinfo, debug.getlocal
local escape, output = core.template_escape, core.template_output

local template = {}

local depth_max = 50 -- templates that include each other
local folders_max = 16 -- levels of folders below that of ls.templates
local pieces_max = 50 -- operands of a concatenation: each needs a register of Lua
local texts_max = 100 -- compiled texts of template.compile that are kept

local template_options = {
  -- table<string, any> - names for all templates, such as functions that format a date
  globals = { "globals", "is", "table", "a table, such as { date = fn }" },
}
template.calls = { ["ls.templates"] = { template_options, listed = true } } -- TemplatesOptions

-- ---- the compiler ----------------------------------------------------------------------------------------------------

local closers = { ["{"] = "}}", ["*"] = "*}", ["%"] = "%}", ["("] = ")}", ["["] = "]}", ["#"] = "#}", ["-"] = "-}" }
local parameters = "local _ENV,context,___,___d,___e,___o,___i,___b,___w,___h,template=..."

-- The state of a compilation: `out`, the parts of the chunk; `code`, the parts that the author wrote; `expressions` and
-- `statements`, the indices in `out` of these; `pieces`, how many operands the open concatenation has; `ahead`, the line
-- breaks that the chunk has and the template has not reached yet; `name`, the template in messages.
local writer = {}
writer.__index = writer

function writer:emit(text) self.out[#self.out + 1] = text end

-- Text of the template that is left out of the page: its line breaks remain in the chunk.
function writer:skip(text)
  for _ in text:gmatch("\n") do
    if self.ahead > 0 then self.ahead = self.ahead - 1 else self:emit("\n") end
  end
end

function writer:close()
  if self.pieces > 0 then self:emit(";") end
  self.pieces = 0
end

-- Append the Lua expression begin .. middle .. stop to the buffer. `middle` is of the author, or nil.
function writer:piece(begin, middle, stop)
  if self.pieces == (self.separate and 1 or pieces_max) then self:close() end
  self:emit((self.pieces == 0 and "___[#___+1]=" or "..") .. begin)
  self.pieces = self.pieces + 1
  if middle then
    self:author(middle, true)
    self:emit(stop)
  end
end

function writer:author(text, is_expression)
  self:emit(text)
  self.code[#self.code + 1] = text
  local list = is_expression and self.expressions or self.statements
  list[#list + 1] = #self.out
end

function writer:text(text)
  if text == "" then return end
  local quoted = format("%q", text) -- its line breaks are those of the text
  if self.ahead > 0 then
    quoted = gsub(quoted, "\\\n", "\\n", self.ahead)
    local _, breaks = gsub(text, "\n", "")
    self.ahead = self.ahead - (breaks < self.ahead and breaks or self.ahead)
  end
  self:piece(quoted)
end

-- Call the function `name` of the chunk with the arguments, which are a statement.
function writer:call(name, arguments, is_expression)
  self:close()
  self:emit(name .. "(context,___,___d,")
  if is_expression then self:author(arguments, true) else self:emit(arguments) end
end

-- A line break after a tag is not a part of the page. Returns the position after it.
local function after_break(w, text, at)
  local after = match(text, "^\r?\n()", at)
  if not after then return at end
  w:skip("\n")
  return after
end

-- The tags, by the character after "{". kind(w, before, content, text, at) writes the text in front of the tag and the
-- tag, and returns the position after the tag, which is `at` or later.
local kinds = {}
local parse

kinds["{"] = function(w, before, content, _, at)
  w:text(before)
  w:piece("___e(", content, ")")
  return at
end

kinds["*"] = function(w, before, content, _, at)
  w:text(before)
  w:piece("___o(", content, ")")
  return at
end

kinds["#"] = function(w, before, content, text, at)
  w:text(before)
  w:skip(content)
  return after_break(w, text, at)
end

kinds["%"] = function(w, before, content, text, at)
  local blanks = match(before, "[ \t\v\0]*$")
  local start = at - #content - 4 - #blanks -- of the blanks: those that begin a line are left out
  w:text(start > 1 and sub(text, start - 1, start - 1) ~= "\n" and before or sub(before, 1, #before - #blanks))
  w:close()
  w:emit(" ")
  w:author(content)
  w:emit(" ")
  if find(content, "%-%-[^\n]*$") then -- perhaps a comment
    w:emit("\n")
    w.ahead = w.ahead + 1
  end
  return after_break(w, text, at)
end

kinds["("] = function(w, before, content, _, at)
  w:text(before)
  local name, given = match(content, "^%s*(.[^,]-)%s*,(.*)$")
  w:call("___i", format("%q", name or match(content, "^%s*(.-)%s*$")) .. (name and "," or ""))
  if name then w:author(given, true) end
  w:emit(");")
  w:skip(name and sub(content, 1, #content - #given) or content)
  return at
end

kinds["["] = function(w, before, content, _, at)
  w:text(before)
  w:call("___i", content, true)
  w:emit(");")
  return at
end

-- {-name-} ... {-name-}
kinds["-"] = function(w, before, content, text, at, from, stop)
  local name = match(content, "^%s*(.-)%s*$")
  local first = match(text, "^\r?\n()", from) or from
  if name == "raw" or name == "verbatim" then
    w:text(before)
    w:skip(content .. sub(text, from, first - 1))
    w:text(sub(text, first, stop))
    w:skip(content)
    return after_break(w, text, at)
  end
  w:text(match(before, "^(.-)[ \t\v\0]*$"))
  w:close()
  w.code[#w.code + 1] = "blocks"
  w:emit(" do local ___s=#___ ")
  w:skip(content .. sub(text, from, first - 1))
  local last = match(sub(text, first, stop), "^(.-)\r?\n?$")
  parse(w, last)
  w:close()
  w:skip(sub(text, first + #last, stop) .. content)
  w:emit(format(" blocks[%q]=___b(___,___s) end ", name))
  return after_break(w, text, at)
end

-- Raise for the tag at `at` in `text`, which has no end. `from`: what is in front of it is written.
local function no_end(w, text, from, at, tag, ending)
  local _, breaks = gsub(concat(w.out) .. sub(text, from, at - 1), "\n", "")
  error(format("%s:%d: %s has no end: %s is missing; to write the characters themselves, put a \\ before them: \\%s",
    w.name, breaks - w.ahead + 1, tag, ending, tag), 0)
end

-- Write the template `text`. A "\" in front of a tag makes it text; two make one.
function parse(w, text)
  local from, at = 1, find(text, "{", 1, true)
  while at do
    local kind = sub(text, at + 1, at + 1)
    local ending = closers[kind]
    local stop = ending and find(text, ending, at + 2, true)
    local tag, after, inner, inner_stop = "{" .. kind, stop and stop + 2, nil, nil
    if stop and kind == "-" then -- in a style sheet, as "a{-webkit-...", it is text
      tag = sub(text, at, stop + 1)
      local second = find(text, tag, after, true)
      ending = find(tag, "^{%-%s*[%w_]+%s*%-}$") and "a second " .. tag
      inner, inner_stop, after = after, second and second - 1, second and second + #tag
    elseif kind == "-" then
      ending = nil
    end
    if after or ending then
      local slashes = match(sub(text, at > 2 and at - 2 or 1, at - 1), "\\*$")
      if #slashes == 1 then
        w:text(sub(text, from, at - 2))
        from = at
      elseif after then
        from = kinds[kind](w, sub(text, from, at - 1 - #slashes // 2), sub(text, at + 2, stop - 1), text, after, inner,
          inner_stop)
        at = from - 1
      else
        no_end(w, text, from, at, tag, ending)
      end
    end
    at = find(text, "{", at + 1, true)
  end
  w:text(sub(text, from))
  w:close()
end

local function mentions(code, name) return find(code, "%f[%w_]" .. name .. "%f[^%w_]") ~= nil end

local function write(text, name, separate)
  local w = { out = {}, code = {}, expressions = {}, statements = {}, pieces = 0, ahead = 0, separate = separate,
    name = name }
  setmetatable(w, writer)
  parse(w, text)
  return w, concat(w.code, " ")
end

-- The number of line breaks in the parts of the chunk up to `last`.
local function breaks_to(w, last)
  local _, count = gsub(concat(w.out, "", 1, last), "\n", "")
  return count
end

-- The message for a template that is not compiled. Of an expression that is wrong on its own, or a statement that does not
-- end, Lua's message for the chunk would name the text after it.
local function explain(w, chunk_name, message)
  for _, index in ipairs(w.expressions) do
    local expression = w.out[index]
    local line = breaks_to(w, index - 1)
    local fine, wrong = load(rep("\n", line) .. "return " .. expression, chunk_name, "t")
    if not fine then
      wrong = gsub(gsub(wrong, " near <eof>", ""), "<eof> expected near", "unexpected")
      return format("%s in the expression %s", wrong, match(expression, "^%s*(.-)%s*$"))
    end
  end
  local place, line, what = match(message, "^(.*:)(%d+):(.*) near '[^'\n]*___[^\n]*$")
  if not place then return message end
  local at
  for _, index in ipairs(w.statements) do
    local ends = breaks_to(w, index) + 1
    if ends <= tonumber(line) then at = ends end
  end
  return format("%s%s:%s before the text or the tag that follows", place, at or line, what)
end

-- compile(text, chunk_name) -> a function with the parameters `parameters`; it returns the layout and the blocks. Raises
-- "file:line: ..." for a syntax error.
local function compile(text, chunk_name)
  local name = sub(chunk_name, 2)
  local w, code = write(text, name)
  if mentions(code, "echo") then w = write(text, name, true) end -- it appends between two expressions
  local head = parameters
  if mentions(code, "layout") then head = head .. " local layout" end
  if mentions(code, "blocks") then head = head .. " local blocks=context.blocks or {}" end
  if mentions(code, "include") then head = head .. " local include=___w(context,___d)" end
  if mentions(code, "echo") then head = head .. " local echo=___h(___)" end
  head = head .. ";"
  local tail = ""
  if mentions(code, "layout") then tail = mentions(code, "blocks") and " return layout,blocks" or " return layout" end
  local fn, message = load(head .. concat(w.out) .. tail, chunk_name, "t")
  if not fn then error(explain(w, chunk_name, message), 0) end
  return fn
end

-- ---- running ---------------------------------------------------------------------------------------------------------

-- The strings of the buffer after position `start`, which are removed from it, as one.
local function take(buffer, start)
  local count = #buffer
  local text = concat(buffer, "", start + 1, count)
  for i = count, start + 1, -1 do buffer[i] = nil end
  return text
end

local function echo_of(buffer)
  return function(...)
    for i = 1, select("#", ...) do buffer[#buffer + 1] = tostring((select(i, ...))) end
  end
end

local views_meta = { __name = "luaserve.views" } -- luaserve dev leaves such tables out
local run_frame

-- chain() -> "page.html > row.html > ...", the templates that run, up to the first one that is in the list twice.
local function chain()
  local names, level = {}, 2
  while true do
    local info = getinfo(level, "f")
    if not info then break end
    if info.func == run_frame then
      local _, name = getlocal(level, 2)
      table.insert(names, 1, name)
    end
    level = level + 1
  end
  local shown, seen = {}, {}
  for _, name in ipairs(names) do
    shown[#shown + 1] = name
    if seen[name] then break end
    seen[name] = true
  end
  return concat(shown, " > ") .. (#shown < #names and " > ..." or "")
end

local function read(folder, name)
  local path, message = core.safe_join(folder, name)
  if not path then return nil, message end
  if core.dev then core.dev.file(core.site_path(path)) end
  local kept = core.kept_text(path) -- all states of a site have the same pages, also those that are made later
  if kept then return kept end
  local text, why, code = core.file_read(path, 64 * 1024 * 1024)
  if text then core.keep_text(path, text) end
  return text, why, code
end

-- load_file(own, name) -> the compiled template. Raises.
local function load_file(own, name)
  local fn = own.compiled[name]
  if fn then return fn end
  usage.check(name, "string", 'the name of a template must be a string, such as "page.html"')
  local relative = match(name, "^/?(.*)$")
  local text, message, code = read(own.folder, relative)
  if not text then
    if code == "ENOENT" then
      usage.error("there is no template %s in %s%s", usage.quote(name), own.folder, usage.suggest(name, own.compiled))
    end
    usage.error("the template %s: %s", usage.quote(name), message)
  end
  fn = compile(text, "@" .. core.site_path(own.folder .. "/" .. relative))
  own.compiled[name] = fn
  return fn
end

-- run(own, name, context, buffer, depth [, fn]): appends the page to the buffer. `name` is the second parameter: chain.
local function run(own, name, context, buffer, depth, fn)
  if depth > depth_max then usage.error("more than %d templates include each other: %s", depth_max, chain()) end
  fn = fn or load_file(own, name)
  local start = #buffer
  local layout, blocks = fn(setmetatable({ context }, own.environment), context, buffer, depth, escape, output, own.include,
    take, own.includer, echo_of, own.template)
  if layout ~= nil then
    local view = take(buffer, start)
    run(own, layout, setmetatable({ view = view, blocks = blocks }, { __index = context }), buffer, depth + 1)
  end
end
run_frame = run

local own_names = { "context", "echo", "include", "layout", "template" } -- a template does not see a value with such a name

local function context_of(call, given)
  if given == nil then return {} end
  usage.check(given, "table", '%s: the values must be a table, such as { title = "Home" }', call)
  for i = 1, #own_names do
    local name = own_names[i]
    if rawget(given, name) ~= nil then
      usage.error("%s: a value cannot have the name %s, which templates have for themselves: call it otherwise, such as "
        .. "page_%s", call, name, name)
    end
  end
  return given
end

-- page_of(own, name, context, depth [, fn]) -> the page as a string
local function page_of(own, name, context, depth, fn)
  local buffer = {}
  run(own, name, context, buffer, depth, fn)
  return concat(buffer)
end

-- views is a Views: the templates of a folder, from ls.templates.
-- views:render(name: string [, values: table]) -> text
-- The page that a template makes of the values. Raises errors of the template with its file and line.
local methods = {}
views_meta.__index = methods

function methods:render(name, values, ...)
  local own = type(self) == "table" and getmetatable(self) == views_meta and self[views_meta]
  if not own then usage.error("views:render: call it with a colon: views:render(\"page.html\", values)") end
  usage.no_more("views:render(name, values)", values, ...)
  return page_of(own, name, context_of("views:render", values), 1)
end

-- The table `template` of templates. template.compile(text or name of a file) -> fn(context) -> page
local function functions_of(own)
  local texts, count = {}, 0
  local t = { escape = escape, output = output }

  local function of(name, fn)
    return function(context) return page_of(own, name, context_of("template", context), 1, fn) end
  end

  function t.compile_file(name) return of(name, load_file(own, name)) end

  function t.compile_string(text)
    if type(text) ~= "string" then usage.error("template.compile: a string is missing; got %s", usage.quote(text)) end
    if not texts[text] then
      if count == texts_max then texts, count = {}, 0 end
      texts[text], count = compile(text, "=text at " .. usage.where()), count + 1
    end
    return of("text", texts[text])
  end

  function t.compile(view)
    return (type(view) == "string" and find(view, "[{<\n]") and t.compile_string or t.compile_file)(view)
  end

  function t.process(view, context) return t.compile(view)(context) end

  return t
end

-- ---- ls.templates ----------------------------------------------------------------------------------------------------

-- Compiles the pages of a folder, so that an error in one of them is one of the site.
local function compile_folder(own, path, prefix, level)
  local entries, message = core.file_list(path, true)
  if not entries then usage.error("ls.templates: %s", message) end
  for _, entry in ipairs(entries) do
    local name = prefix .. entry.name
    if entry.type == "directory" and not find(entry.name, "^%.") then
      if level == folders_max then
        usage.error("ls.templates: %s has more than %d levels of folders", own.folder, folders_max)
      end
      compile_folder(own, path .. "/" .. entry.name, name .. "/", level + 1)
    elseif entry.type == "file" and find(entry.name, "%.html?$") then
      load_file(own, name)
    end
  end
end

local all = {} -- of this state

-- Functions and tables of Lua with names that pages have for values of their own, such as the next page. A template does
-- not see them, for {% if next then %} would always be true.
local hidden = {}
for _, name in ipairs { "arg", "debug", "error", "load", "next", "package", "print", "select", "warn" } do
  hidden[name] = _G[name]
end

local function global(_, name)
  local value = _G[name]
  if value ~= hidden[name] then return value end
end

-- ls.templates(folder: string [, options: TemplatesOptions]) -> views: Views
-- Compiles the templates below a folder: HTML files at once, others when they are used. Only while the site loads.
function template.open(folder, given, ...)
  usage.refuse(type(folder) ~= "string" or folder == "" or find(folder, "\0", 1, true), folder,
    'ls.templates: the folder must be a string, such as "views"')
  usage.no_more("ls.templates(folder, options)", given, ...)
  usage.check(given, "table?", "ls.templates: options must be a table, such as { globals = { ... } }")
  if core.thread() ~= 0 then
    usage.error("ls.templates: call it at the top of the site, not in a handler: it compiles the templates")
  end
  given = given or {}
  options.take("ls.templates", given, template.calls["ls.templates"], {})
  local globals = given.globals
  context_of("ls.templates: globals", globals)
  local own = { folder = match(folder, "^(.-)/*$"), compiled = {} }
  if own.folder == "" then own.folder = "/" end
  own.template = functions_of(own)

  local fallback = setmetatable({ template = own.template },
    { __index = setmetatable(own.template, { __index = global }) })
  for name, value in pairs(globals or {}) do fallback[name] = value end
  own.environment = {
    __index = function(environment, name)
      local value = environment[1][name]
      if value ~= nil then return value end
      return fallback[name]
    end,
  }
  function own.include(context, buffer, depth, name, given_context)
    run(own, name, given_context and context_of("include", given_context) or context, buffer, depth + 1)
  end
  function own.includer(context, depth)
    return function(name, given_context)
      return page_of(own, name, given_context and context_of("include", given_context) or context, depth + 1)
    end
  end
  compile_folder(own, own.folder, "", 1)
  local views = setmetatable({ [views_meta] = own }, views_meta)
  all[#all + 1] = views
  return views
end

-- folders() -> list of the folders given to ls.templates
function template.folders()
  local list = {}
  for i, views in ipairs(all) do list[i] = views[views_meta].folder end
  return list
end

-- is(value) -> whether value is a result of ls.templates.
function template.is(value) return getmetatable(value) == views_meta end

-- respond(res, name, values) -> res: res:render.
function template.respond(res, name, values)
  local views = all[1]
  if not views then usage.error('res:render: the site has no templates: ls.templates("views") at its top') end
  if all[2] then
    usage.error("res:render: the site has several folders of templates: res:html(views:render(name, values))")
  end
  return res:html(page_of(views[views_meta], name, context_of("res:render", values), 1))
end

return template
