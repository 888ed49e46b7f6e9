-- mail.lua - the mails of the site. A request puts a mail into a queue, which sends it, again if the mail server does not take it.
--
-- MAIL_SERVER=smtp.example.org:587 sends them, with MAIL_FROM as the sender; without it the log shows them.

local ls = require "luaserve"
local store = require "store"

local mail = {}

local server, from = ls.env("MAIL_SERVER", ""), ls.env("MAIL_FROM", "site@localhost")
assert(server == "" or server:find "^[^:]+:%d+$", "MAIL_SERVER must be a host and a port, such as smtp.example.org:587")

-- Says a line to the mail server (RFC 5321), and raises unless the code of its answer begins with `expected`.
local function say(sock, line, expected)
  if line then sock:send(line, "\r\n") end
  local answer
  repeat answer = assert(sock:receive "*l") until not answer:find "^%d%d%d%-"
  if answer:sub(1, 1) ~= expected then error("the mail server said: " .. answer, 0) end
end

-- deliver({ to =, subject =, text = }): raises if the mail server does not take it. Tests replace it.
function mail.deliver(message)
  if server == "" then return ls.log.info("mail to " .. message.to .. ": " .. message.text) end
  local host, port = server:match "^(.+):(%d+)$"
  local sock <close> = assert(ls.connect(host, tonumber(port), { read_timeout = 30 }))
  say(sock, nil, "2")
  say(sock, "EHLO " .. from:match "@(.*)$", "2")
  say(sock, "STARTTLS", "2")
  assert(sock:starttls { server_name = host })
  say(sock, "EHLO " .. from:match "@(.*)$", "2")
  say(sock, "MAIL FROM:<" .. from .. ">", "2")
  say(sock, "RCPT TO:<" .. message.to .. ">", "2")
  say(sock, "DATA", "3")
  local text = ("From: %s\nTo: %s\nSubject: %s\n\n%s"):format(from, message.to, message.subject, message.text)
  say(sock, (("\n" .. text):gsub("\n%.", "\n.."):sub(2):gsub("\n", "\r\n")) .. "\r\n.", "2")
  say(sock, "QUIT", "2")
end

store.mails:run(function(job) mail.deliver(job.data) end)

-- send({ to =, subject =, text = }): the texts are of this site, the address has the form that accounts.lua checks.
function mail.send(message) store.mails:push(message) end

return mail
