// node.js - the work of ws.lua for node and its package ws.   node node.js PORT [deflate]
"use strict";
const http = require("node:http");
const { WebSocket, WebSocketServer } = require("ws");

const [port, mode] = process.argv.slice(2);
const subscribers = new Set();

const server = http.createServer((request, response) => {
  const text = { "/": "hello, world\n", "/subscribers": String(subscribers.size) }[request.url];
  response.statusCode = text === undefined ? 404 : 200;
  response.end(text ?? "not found\n");
});

new WebSocketServer({ server, perMessageDeflate: mode === "deflate" }).on("connection", (socket, request) => {
  if (request.url === "/sub") {
    subscribers.add(socket);
    socket.on("close", () => subscribers.delete(socket));
  } else if (request.url === "/echo") {
    socket.on("message", (data, binary) => socket.send(data, { binary }));
  } else if (request.url === "/pub") {
    socket.on("message", (data, binary) => {
      for (const one of subscribers) if (one.readyState === WebSocket.OPEN) one.send(data, { binary });
    });
  }
});
server.listen(Number(port), "127.0.0.1");
