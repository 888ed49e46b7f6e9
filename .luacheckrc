std = "lua54"
max_line_length = 124
files["lua/templates"] = {
  read_globals = { "describe", "it", "pending", "before", "after", "before_each", "after_each" },
}
