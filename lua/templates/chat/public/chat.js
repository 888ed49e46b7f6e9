"use strict";
const INVALID = 4000; // the code of chat.lua: another try would not help
const find = (id) => document.getElementById(id);
const messages = find("messages");
const shown = new Set(); // numbers of messages
let socket, room, name, last = 0, failures = 0;

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

// Show the form of those who are in a room, or that of those who are not.
function inside(is) {
  find("enter").hidden = is;
  find("say").hidden = !is;
  find(is ? "text" : "name").focus();
}

function connect() {
  const query = new URLSearchParams({ room, name, after: last });
  socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/live?" + query);
  socket.onopen = () => {
    failures = 0;
    find("status").textContent = "Connected to " + room + ".";
    inside(true);
  };
  socket.onmessage = (event) => {
    if (event.target !== socket) return; // of a room that was left
    const data = JSON.parse(event.data);
    data.messages?.forEach(show);
    if (data.people) find("people").textContent = "Here now: " + data.people.join(", ");
  };
  socket.onclose = (event) => {
    if (event.target !== socket) return;
    if (event.code === INVALID) return leave(event.reason);
    find("status").textContent = "Connection lost. Trying again …";
    setTimeout(() => event.target === socket && connect(), Math.min(500 * 2 ** failures++, 15000) * (0.5 + Math.random()));
  };
}

function leave(reason) {
  const left = socket;
  socket = undefined;
  left.close();
  find("status").textContent = "Not connected.";
  find("people").textContent = "";
  find("wrong").textContent = reason;
  inside(false);
}

find("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  find("wrong").textContent = "";
  name = find("name").value.trim();
  if (room !== find("room").value) { // the messages are those of one room
    room = find("room").value;
    messages.replaceChildren();
    shown.clear();
    last = 0;
  }
  socket?.close(); // it may be about to connect
  connect();
});

find("leave").addEventListener("click", () => leave(""));

find("say").addEventListener("submit", (event) => {
  event.preventDefault();
  if (socket?.readyState !== WebSocket.OPEN) return; // the text stays in its field
  socket.send(find("text").value);
  find("text").value = "";
});

fetch("rooms").then((answer) => answer.json()).then((rooms) => find("room").append(...rooms.map((one) => new Option(one))));
