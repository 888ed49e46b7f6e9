-- post.lua - a form, sent again and again: without request() the defaults in `wrk` make one request for all.
-- luacheck: std luajit, no unused args, globals wrk
wrk.method = "POST"
wrk.path = "/echo"
wrk.body = "name=ada&year=1843"
wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
