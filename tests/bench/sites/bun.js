// bun.js - the work of client.lua and data.lua for Bun.   bun bun.js PORT fetch URL | sqlite FILE
const [port, kind, where] = process.argv.slice(2);
const text = (body) => new Response(body);
let answer;

if (kind === "fetch") {
  answer = async () => text(await (await fetch(where)).text());
} else {
  const { Database } = await import("bun:sqlite");
  const db = new Database(where, { create: true });
  db.exec("pragma journal_mode = wal; pragma synchronous = normal; pragma foreign_keys = on");
  db.exec(`create table if not exists item (id integer primary key, name text not null);
    create table if not exists event (id integer primary key, text text not null);
    insert into item(name) with recursive c(n) as (select 1 union all select n + 1 from c where n < 1000) select 'item ' || n from c`);
  const row = db.query("select name from item where id = ?");
  const insert = db.query("insert into event(text) values (?)");
  const events = db.query("select count(*) as n from event");
  answer = (path) => {
    if (path.startsWith("/rows/")) return text(row.get(Number(path.slice(6))).name);
    if (path === "/insert") return text(String(insert.run("a request").changes));
    return text(String(events.get().n));
  };
}

Bun.serve({
  hostname: "127.0.0.1",
  port: Number(port),
  fetch(request) {
    const { pathname } = new URL(request.url);
    return pathname === "/" ? text("hello, world\n") : answer(pathname);
  },
});
