// bun.js - the work of ws.lua for Bun.   bun bun.js PORT [deflate]
const [port, mode] = process.argv.slice(2);
const deflate = mode === "deflate";
const TOPIC = "bench";

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: Number(port),
  fetch(request, server) {
    const { pathname } = new URL(request.url);
    if (pathname === "/") return new Response("hello, world\n");
    if (pathname === "/subscribers") return new Response(String(server.subscriberCount(TOPIC)));
    if (server.upgrade(request, { data: pathname })) return undefined;
    return new Response("not found\n", { status: 404 });
  },
  websocket: {
    perMessageDeflate: deflate,
    idleTimeout: 0,
    open(socket) {
      if (socket.data === "/sub") socket.subscribe(TOPIC);
    },
    message(socket, data) {
      if (socket.data === "/echo") socket.send(data, deflate);
      else if (socket.data === "/pub") server.publish(TOPIC, data, deflate);
    },
  },
});
