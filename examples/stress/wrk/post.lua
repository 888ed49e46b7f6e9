-- post.lua - the same form in every request: without request(), wrk builds one request from the defaults in `wrk`.
-- luacheck: std luajit, no unused args, globals wrk
wrk.method = "POST"
wrk.path = "/echo"
wrk.body = "name=ada&year=1843"
wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
