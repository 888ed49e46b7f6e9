// node.js - the work of data.lua for node and its package pg.   node node.js PORT postgres URL
"use strict";
const http = require("node:http");
const { Pool } = require("pg");

const [port, , connectionString] = process.argv.slice(2);
const pool = new Pool({ connectionString, max: 10 });

function send(response, body) {
  response.setHeader("Content-Type", "text/plain");
  response.setHeader("Content-Length", Buffer.byteLength(body));
  response.end(body);
}

http.createServer((request, response) => {
  const id = request.url.match(/^\/rows\/(\d+)$/)?.[1];
  if (!id) return send(response, "hello, world\n");
  return pool.query({ name: "row", text: "select name from item where id = $1", values: [Number(id)] })
    .then(({ rows }) => send(response, rows[0].name));
}).listen(Number(port), "127.0.0.1");
