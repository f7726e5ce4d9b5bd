// Sends messages one after the other, cutting its connection now and then, and prints what it saw as JSON.
import { createRequire } from "node:module";
const WebSocket = createRequire(import.meta.url)("ws");

const [url, token, session, count] = process.argv.slice(2);
const events = [];
const accepted = new Set();
let connections = 0;
let sent = 0;
let answered = 0;

function connect() {
  connections += 1;
  const socket = new WebSocket(`${url}/v1/live?client=node`, "callboard.v1", { headers: { authorization: `Bearer ${token}` } });
  const send = () => {
    const message_id = `node-${answered}`;
    socket.send(JSON.stringify({ type: "send", session, content: `message ${answered}`, message_id }));
    sent += 1;
    // In the middle of every third message: whether it was accepted is not known, so it is sent again under its id.
    if (sent % 3 === 0) socket.terminate();
  };
  socket.on("open", () => {
    const after = events.length ? events[events.length - 1].id : 0;
    socket.send(JSON.stringify({ type: "subscribe", session, after }));
  });
  socket.on("message", (data) => {
    const frame = JSON.parse(data);
    if (frame.type === "error") throw new Error(JSON.stringify(frame));
    if (frame.type === "subscribed") send();
    if (frame.type === "accepted") accepted.add(frame.message_id);
    if (frame.type === "event") {
      const { id, kind, data: body } = frame;
      events.push({ id, kind, data: body });
      if (kind !== "turn.completed" || body.message_id !== `node-${answered}`) return;
      answered += 1;
      if (answered === Number(count)) socket.close(1000);
      else send();
    }
  });
  socket.on("error", () => {});
  socket.on("close", (code) => {
    if (code !== 1000) return setImmediate(connect);
    process.stdout.write(JSON.stringify({ connections, events, accepted: [...accepted] }));
  });
}

connect();
