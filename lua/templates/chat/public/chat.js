"use strict";
const INVALID = 4000; // the code of chat.lua: another try would not help
const find = (id) => document.getElementById(id);
const messages = find("messages");
const shown = new Set(); // numbers of messages
let socket, name, last = 0, version = 0, failures = 0;

function show(message) {
  if (shown.has(message.number)) return; // received twice
  shown.add(message.number);
  last = Math.max(last, message.number);
  const line = document.createElement("li");
  line.textContent = message.name + ": " + message.text; // textContent: what people write is never HTML
  const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 50;
  messages.append(line);
  if (atEnd) messages.scrollTop = messages.scrollHeight;
}

function connect() {
  const query = new URLSearchParams({ name, after: last });
  socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/live?" + query);
  socket.onopen = () => {
    failures = version = 0;
    find("status").textContent = "Connected.";
    find("enter").hidden = true;
    find("say").hidden = false;
    find("text").focus();
  };
  socket.onmessage = (event) => {
    const data = JSON.parse(event.data);
    data.messages?.forEach(show);
    if (data.people && data.version > version) {
      version = data.version;
      find("people").textContent = "Here now: " + data.people.join(", ");
    }
  };
  socket.onclose = (event) => {
    if (event.code === INVALID) {
      find("status").textContent = "Not connected.";
      find("wrong").textContent = event.reason;
      find("enter").hidden = false;
      find("say").hidden = true;
      return;
    }
    find("status").textContent = "Connection lost. Trying again …";
    setTimeout(connect, Math.min(500 * 2 ** failures++, 15000) * (0.5 + Math.random()));
  };
}

find("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  find("wrong").textContent = "";
  name = find("name").value.trim();
  connect();
});

find("say").addEventListener("submit", (event) => {
  event.preventDefault();
  if (socket.readyState !== WebSocket.OPEN) return; // the text stays in its field
  socket.send(find("text").value);
  find("text").value = "";
});
