std = "lua54"
max_line_length = 124
files["lua/templates"] = {
  read_globals = { "describe", "it", "pending", "before", "after", "before_each", "after_each" },
}
-- Sites of tests: results that nobody looks at, and the same names again.
files["tests/unit/script"] = { ignore = { "21.", "23.", "24.", "31.", "33.", "4.." } }
