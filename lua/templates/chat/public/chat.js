"use strict";
let last = 0;

function show(message) {
  const line = document.createElement("p");
  line.textContent = message.name + ": " + message.text; // textContent: what people write is no HTML
  const list = document.getElementById("messages");
  list.append(line);
  list.scrollTop = list.scrollHeight;
}

async function poll() {
  try {
    const answer = await (await fetch("/messages?after=" + last)).json();
    if (answer.last < last) document.getElementById("messages").replaceChildren(); // the server has been started again
    for (const message of answer.messages) show(message);
    last = answer.last;
  } finally {
    setTimeout(poll, 1000);
  }
}

document.getElementById("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = document.getElementById("text");
  const name = document.getElementById("name").value;
  const response = await fetch("/messages", { method: "POST", body: JSON.stringify({ name, text: text.value }) });
  document.getElementById("wrong").textContent = response.ok ? "" : (await response.json()).error;
  if (response.ok) text.value = "";
});

poll();
