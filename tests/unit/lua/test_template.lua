-- luacheck: ignore 631
local check = require "check"
local core = require "fake_core"
local template = require "luaserve.template"

local tests = {}

core.results.safe_join = function(directory, path)
  if path:find("%.%.") or path == "" then return nil, "invalid path: it leaves the directory", "EINVAL" end
  return directory .. "/" .. path
end

-- The templates of a folder with these files.
local function views_of(files, options)
  core.files = {}
  for name, text in pairs(files) do core.files["views/" .. name] = text end
  return template.open("views", options)
end

-- The page of a text.
local function page(text, values, files, options)
  local all = { ["page.html"] = text }
  for name, one in pairs(files or {}) do all[name] = one end
  return views_of(all, options):render("page.html", values)
end

function tests.names_of_lua_that_pages_have_too()
  check.equal(page("{% if next or error or package or debug or arg then %}wrong{% end %}{{select}}{{print}}{{load}}"), "")
  check.equal(page("{{next}}{{error}}", { next = 2, error = "none" }), "2none")
  check.equal(page("{% for _, x in ipairs{1} do %}{{x}}{{type(x)}}{{table.concat({1})}}{% end %}"), "1number1")
end

-- Not the address of a table, nor nothing.
function tests.names_that_templates_have_for_themselves_are_no_values()
  for _, name in ipairs { "context", "echo", "include", "layout", "template" } do
    local wrong = "a value cannot have the name " .. name
    check.raises({ check.line(), "views:render: " .. wrong }, function() views_of({ ["a.html"] = "" }):render("a.html", { [name] = "x" }) end)
    check.raises("include: " .. wrong, page, "{(a.html, { " .. name .. " = 1 })}", nil, { ["a.html"] = "" })
    check.raises("include: " .. wrong, page, "{*include('a.html', { " .. name .. " = 1 })*}", nil, { ["a.html"] = "" })
    check.raises("template: " .. wrong, page, "{*template.compile('<b>')({ " .. name .. " = 1 })*}")
    check.raises("ls.templates: globals: " .. wrong, views_of, {}, { globals = { [name] = 1 } })
  end
  check.equal(page("{{view}}{{blocks}}", { view = "v", blocks = "b" }), "vb")
end

function tests.a_text_without_tags_is_the_page()
  for _, text in ipairs { "", "\n", "<p>a</p>\r\n", "a\0b\r\\n\"'", "{ {} {x} { { }", "{- a", "a{",
    "a{-webkit-box:1}\n{-b: c-}", "\\\\ \\", "\\{- a" } do
    check.equal(page(text), text)
  end
end

function tests.values_are_escaped_or_raw()
  for _, case in ipairs {
    { "{{v}}|{*v*}", "<a href='x'>&\"", "&lt;a href=&#39;x&#39;&gt;&amp;&quot;|<a href='x'>&\"" },
    { "{{v}}|{*v*}", nil, "|" },
    { "{{v}}|{*v*}", false, "false|false" },
    { "{{v}}|{*v*}", 12, "12|12" },
    { "{{v}}|{*v*}", 1.5, "1.5|1.5" },
    { "{{v}}|{*v*}", function() return function() return "<" end end, "&lt;|<" },
    { "{{v}}|{*v*}", setmetatable({}, { __tostring = function() return "<b>" end }), "&lt;b&gt;|<b>" },
    { "{{ v.a.b }}", { a = { b = "<" } }, "&lt;" },
    { "{{v:upper()}}{{ #v + 1 }}", "ab", "AB3" },
    { "{{context.v}}", "<", "&lt;" },
    { "{*context['v']*}", "x", "x" },
  } do check.equal(page(case[1], { v = case[2] }), case[3]) end
end

function tests.code_runs_and_leaves_no_line()
  local text = "<ul>\n  {% for i, name in ipairs(names) do %}\n  <li>{{i}} {{name}}</li>\n  {% end %}\n</ul>\n"
  check.equal(page(text, { names = { "<", "b" } }), "<ul>\n  <li>1 &lt;</li>\n  <li>2 b</li>\n</ul>\n")
  check.equal(page("a  {% if true then %}b{% end %} c"), "a  b c")
  check.equal(page("<a>Admin</a> {% if true then %}{{v}} {% end %}{# x #} {% local n = 1 %}b", { v = "ada" }), "<a>Admin</a> ada  b")
  check.equal(page("a\r\n\t {% local n = 1 %}b"), "a\r\nb")
  check.equal(page("{% local x = 1 -- a comment %}{{x}}\n{{x + 1}}"), "1\n2")
  check.equal(page("{%\n-- only a comment %}\r\na"), "a")
  check.equal(page("{% if x then %}{% else %}no{% end %}"), "no")
end

function tests.an_assignment_lasts_for_one_run()
  local views = views_of { ["page.html"] = "{{n}}{% n = 1 %}{{n}}", ["outer.html"] = "{% n = 5 %}{(page.html)}{{n}}" }
  check.equal(views:render("page.html"), "1")
  check.equal(views:render("page.html"), "1")
  check.equal(views:render("outer.html"), "15")
  check.equal(rawget(_G, "n"), nil)
end

function tests.comments_and_raw_blocks()
  check.equal(page("a{# {{x.y}} #}\nb{# c #}d"), "ab" .. "d")
  check.equal(page("a {-raw-}\n{{x}}{% y %}\n{-raw-}\nb"), "a {{x}}{% y %}\nb")
  check.equal(page("{-verbatim-}{*x*}{-verbatim-}"), "{*x*}")
end

function tests.a_backslash_makes_a_tag_text()
  for text, expected in pairs {
    ["\\{{v}}"] = "{{v}}", ["\\\\{{v}}"] = "\\1", ["\\{*v*}{{v}}"] = "{*v*}1", ["\\{% v %}"] = "{% v %}",
    ["\\{# v #}"] = "{# v #}", ["\\{(v)}"] = "{(v)}", ["\\{[v]}"] = "{[v]}", ["\\{-a-}x\\{-a-}"] = "{-a-}x{-a-}",
    ["\\{{v} \\{%"] = "{{v} {%", ["\\{# v"] = "{# v", ["{{v}}\\{(a"] = "1{(a",
    ["\\\\{% v = 2 %}{{v}}"] = "\\2", ["\\x{{v}}"] = "\\x1",
  } do check.equal(page(text, { v = 1 }), expected) end
end

function tests.a_tag_without_an_end_is_an_error()
  for text, message in pairs {
    ["\n{{x"] = "2: {{ has no end: }} is", ["{{x}"] = "1: {{ has no end: }} is", ["a\n\n{# secret"] = "3: {# has no end: #} is",
    ["{* x"] = "1: {* has no end: *} is", ["{% if"] = "1: {% has no end: %} is", ["{(a.html"] = "1: {( has no end: )} is",
    ["{[a"] = "1: {[ has no end: ]} is", ["\\\\{{x"] = "1: {{ has no end", ["{{1}}\n{{x"] = "2: {{ has",
    ["\n{-head-}\nx"] = "2: {-head-} has no end: a second {-head-} is", ["{- raw -}"] = "1: {- raw -} has no end: a second",
    ["{-a-}\n\n{{x\n{-a-}{{2}}"] = "3: {{ has", ["{-a-}x{-b-}"] = "1: {-a-} has", ["{% a = 1 -- b %}\n{# c #}\n\n{{x"] = "4: {{ has",
    ["{-raw-}\n{{x\n{-raw-}\n{*"] = "4: {* has",
  } do
    local ok, err = pcall(page, text)
    check.equal(ok, false)
    check.equal(err:find("/site/views/page.html:" .. message, 1, true), 1)
  end
  check.equal(select(2, pcall(page, "{{x")),
    "/site/views/page.html:1: {{ has no end: }} is missing; to write the characters themselves, put a \\ before them: \\{{")
  check.equal(select(2, pcall(page, "{*template.compile('{' .. '{x')*}")):match("has no end.*"):sub(1, 10), "has no end")
end

function tests.includes_share_the_values_or_have_their_own()
  local files = { ["row.html"] = "[{{name}}]", ["sub/row.txt"] = "({{name}})" }
  for text, expected in pairs {
    ["{(row.html)}"] = "[a]", ["{( row.html )}"] = "[a]", ["{(/row.html)}"] = "[a]", ["{(row.html, { name = 'b' })}"] = "[b]",
    ["{[ 'row.html' ]}"] = "[a]", ["{['row' .. '.html', { name = 'b' }]}"] = "[b]", ["{(sub/row.txt)}"] = "(a)",
    ["{*include('row.html')*}|{*include('row.html', { name = 'b' })*}"] = "[a]|[b]",
    ["{% local other = include('row.html') %}<{*other*}>"] = "<[a]>",
    ["{% for _, name in ipairs{'x','y'} do %}{(row.html, { name = name })}{% end %}"] = "[x][y]",
  } do check.equal(page(text, { name = "a" }, files), expected) end
end

function tests.a_layout_gets_the_page_as_view()
  local files = {
    ["layout.html"] = "<title>{{title}}</title>{*view*}|{*blocks.aside*}|{{x}}",
    ["section.html"] = "{% layout = 'layout.html' %}<div>{*view*}</div>",
  }
  check.equal(page("{% layout = 'section.html' %}<p>{{x}}</p>", { title = "<", x = 1 }, files),
    "<title>&lt;</title><div><p>1</p></div>||1")
  check.equal(page("{% layout='layout.html' %}\n{-aside-}\n<i>{{x}}</i>\n{-aside-}\nbody", { x = 1 }, files),
    "<title></title>body|<i>1</i>|1")
  check.equal(page("a{(inner.html)}b", { x = 2 }, { ["inner.html"] = "{% layout = 'frame.html' %}in", ["frame.html"] = "<{*view*}{{x}}>" }),
    "a<in2>b")
end

function tests.blocks_of_three_levels()
  local files = {
    ["base.html"] = "<head>{*blocks.css*}</head>{*blocks.main*}",
    ["layout.html"] = "{% layout = 'base.html' %}{-main-}<nav>{*blocks.sidebar*}</nav>{*blocks.content*}{-main-}",
  }
  local text = "{% layout = 'layout.html' %}\n{-sidebar-}\nside {{v}}\n{-sidebar-}\n\n{-content-}\ntext\n{-content-}\n{-css-}<link>{-css-}"
  check.equal(page(text, { v = "<" }, files), "<head><link></head><nav>side &lt;</nav>text")
end

function tests.echo_appends_in_order()
  check.equal(page("begin\n{% for i = 1, 3 do echo(i, ',', nil, '<') end %}{{v}} end", { v = 7 }), "begin\n1,nil<2,nil<3,nil<7 end")
  check.equal(page("a{-b-}x{% echo('y') %}z{-b-}{*blocks.b*}"), "axyz")
end

function tests.templates_of_a_text()
  check.equal(page("{% local m = [[<b>{{item}}</b>]] %}{*template.compile(m)(context)*}{*template.compile(m){ item = '<' }*}", { item = 1 }),
    "<b>1</b><b>&lt;</b>")
  check.equal(page("{*template.process('row.html', { name = 2 })*}", nil, { ["row.html"] = "[{{name}}]" }), "[2]")
  check.equal(page("{*template.compile_string('plain')()*}{{template.escape('<')}}{*template.escape('<')*}"), "plain&amp;lt;&lt;")
  check.raises("text at", page, "{*template.compile('{{x.y}}')()*}")
  check.equal(page("{% local t for i = 1, 250 do t = template.compile('{{n}}' .. i){ n = i } end %}{*t*}"), "250250")
end

function tests.names_are_found_in_order()
  _G.of_the_site = "site"
  local options = { globals = { a = "global", b = "global", upper = string.upper } }
  check.equal(page("{{a}} {{b}} {{of_the_site}} {{upper('x')}} {{none}}", { a = "value" }, nil, options), "value global site X ")
  check.equal(page("{{a == false and 'false'}}", { a = false }, nil, options), "false")
  _G.of_the_site = nil
end

function tests.long_texts_and_many_pieces()
  local text = ("<i>{{v}}</i>\n"):rep(1000)
  check.equal(page(text, { v = 1 }), ("<i>1</i>\n"):rep(1000))
  check.equal(#page(("x"):rep(200000) .. "{{v}}", { v = 1 }), 200001)
end

function tests.errors_name_the_file_and_the_line()
  local function fails(line, message, text, values, files)
    check.raises({ "/site/views/page.html:" .. line .. ":", message }, page, text, values, files)
  end
  fails(3, "attempt to index a nil value (global 'user')", "a\nb\n{{user.name}}")
  fails(2, "attempt to index", "{{1}}{# \n #}{{x.y}}")
  fails(4, "attempt to call", "{-raw-}\n\n{-raw-}\nb{% x() %}")
  fails(5, "oops", "{-a-}\n\nx\n{-a-}\n{% assert(false, 'oops') %}")
  fails(3, "oops", "{% -- note %}\nb\n{% assert(false, 'oops') %}")
  fails(3, "oops", "{% -- note %}b\nc\n{% assert(false, 'oops') %}")
  fails(3, "oops", "{% local a =\r\n1 %}\r\n{% assert(false, 'oops') %}")
  fails(3, "oops", "{{'a' ..\n'b'}}\n{*assert(false, 'oops')*}")
  -- syntax
  fails(2, "in the expression 1 +", "a\n{{1 +}}")
  fails(3, "in the expression a b", "{% if x then %}\n\n{*a b*}{% end %}")
  fails(2, "in the expression { a", "\n{(page.html, { a )}")
  fails(2, "'do' expected before the text", "\n{% for x in y %}text{% end %}")
  fails(2, "'do' expected before the text", "\n{% for x in y %}\n<b>\n{% end %}")
  fails(4, "'end' expected (to close 'if' at line 2)", "\n{% if x then %}\n\n")
  fails(1, "expected near 'end'", "{% end %}")
  fails(3, "unfinished string", "\n\n{% x = 'a %}\n")
end

function tests.a_page_with_a_syntax_error_is_an_error_of_the_load()
  check.raises("/site/views/sub/broken.htm:2:", views_of, { ["page.html"] = "", ["sub/broken.htm"] = "\n{{ 1 + }}" })
  check.equal(views_of({ ["page.html"] = "a", ["notes.md"] = "{{ }}", [".hidden/x.html"] = "{{ }}" }):render("page.html"), "a")
end

function tests.includes_that_never_end_are_refused_with_the_chain()
  check.raises("page.html > page.html > ...", page, "{(page.html)}")
  check.raises("page.html > a.html > b.html > a.html > ...", page, "{(a.html)}", nil,
    { ["a.html"] = "{(b.html)}", ["b.html"] = "{[ 'a.html' ]}" })
  check.raises("page.html > frame.html > frame.html > ...", page, "{% layout = 'frame.html' %}", nil,
    { ["frame.html"] = "{% layout = 'frame.html' %}" })
  -- 50 templates may include each other
  local tree = "{{depth}}{% if depth > 1 then %}{(page.html, { depth = depth - 1 })}{% end %}"
  check.equal(#page(tree, { depth = 50 }), 41 * 2 + 9)
  check.raises("more than 50 templates include each other: page.html > page.html > ...", page, tree, { depth = 51 })
end

function tests.names_that_are_no_template()
  local views = views_of { ["page.html"] = "{[name]}", ["row.html"] = "" }
  check.raises({ check.line(), 'no template "pag.html" in views; did you mean \'page.html\'?' }, function() views:render("pag.html") end)
  check.raises({ "/site/views/page.html:1:", 'the template "../x"', "leaves" }, views.render, views, "page.html", { name = "../x" })
  check.raises("got a table", views.render, views, "page.html", { name = {} })
  check.raises("got nil", views.render, views)
  check.raises("views:render", views.render, "page.html")
  check.raises("must be a table", views.render, views, "page.html", "x")
  check.raises("too many arguments", views.render, views, "page.html", {}, "layout.html")
end

function tests.wrong_calls_of_ls_templates()
  check.raises("must be a string", template.open)
  check.raises("did you mean 'globals'?", template.open, "views", { global = {} })
  check.raises("globals must be a table", template.open, "views", { globals = 1 })
  check.raises("options must be a table", template.open, "views", "x")
  check.raises("nowhere: not found", template.open, "nowhere")
  core.serving = true
  check.raises("top of the site", template.open, "views")
  core.serving = nil
end

function tests.folders_have_16_levels()
  local function of(levels) return { [("a/"):rep(levels - 1) .. "x.html"] = "deep" } end
  check.equal(views_of(of(16)):render(("a/"):rep(15) .. "x.html"), "deep")
  check.raises("16 levels", views_of, of(17))
end

return tests
