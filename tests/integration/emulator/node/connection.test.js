// One connection for everything a client does, kept alive while it does nothing.

import assert from "node:assert/strict";
import net from "node:net";
import { createRequire } from "node:module";
import { test } from "node:test";
import { bodies, connect, connectionString, receive } from "./shared.js";

const { Constants } = createRequire(import.meta.url)("@azure/core-amqp");

/** Passes everything on to the emulator, and counts who comes. */
async function counting() {
  const port = Number(/:(\d+);/.exec(connectionString)[1]);
  const seen = { connections: 0, server: null, connectionString: "" };
  seen.server = net.createServer((near) => {
    seen.connections += 1;
    const far = net.connect(port, "127.0.0.1");
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) socket.on("error", () => [near, far].forEach((each) => each.destroy()));
  });
  await new Promise((resolve) => seen.server.listen(0, "127.0.0.1", resolve));
  seen.connectionString = connectionString.replace(/:\d+;/, `:${seen.server.address().port};`);
  return seen;
}

/** How many AMQP sessions the client has on its connection. */
function sessionsOf(client) {
  return Object.keys(client._connectionContext.connection._connection.local_channel_map).length;
}

test("many senders and receivers share one connection, each in its own session", async () => {
  const counted = await counting();
  const client = connect(counted.connectionString);
  const names = ["one", "two", "three", "four"];
  const senders = names.map((name) => client.createSender(name));
  const receivers = names.map((name) => client.createReceiver(name));
  await Promise.all(
    senders.map((sender, place) => sender.sendMessages([...Array(20).keys()].map((number) => ({ body: `${place}-${number}` })))),
  );
  const found = await Promise.all(receivers.map((receiver) => receive(receiver, 20)));
  await Promise.all(
    found.flatMap((messages, place) => messages.map((message) => receivers[place].completeMessage(message))),
  );
  found.forEach((messages, place) => {
    assert.deepEqual(bodies(messages), [...Array(20).keys()].map((number) => `${place}-${number}`));
  });
  assert.deepEqual((await Promise.all(receivers.map((receiver) => receiver.peekMessages(1)))).flat(), []);
  assert.equal(counted.connections, 1);
  assert.ok(sessionsOf(client) >= 8, `${sessionsOf(client)} sessions`);
  await client.close();
  counted.server.close();
});

test("the emulator's heartbeats keep an idle connection open", async () => {
  // A minute otherwise, which is longer than anybody wants to wait. The client gives up on a peer it has not heard of
  // for twice as long, so a connection that is still the same after more than that has had its heartbeats.
  const usual = Constants.defaultConnectionIdleTimeoutInMs;
  Constants.defaultConnectionIdleTimeoutInMs = 3_000;
  const counted = await counting();
  const client = connect(counted.connectionString);
  try {
    const sender = client.createSender("idle");
    await sender.sendMessages({ body: "before" });
    const { connection } = client._connectionContext;
    assert.equal(connection._connection.local.open.idle_time_out, 3_000);
    const lost = new Promise((resolve) => connection.once("disconnected", () => resolve("lost")));
    const rest = new Promise((resolve) => setTimeout(resolve, 8_000, "alive"));
    assert.equal(await Promise.race([lost, rest]), "alive");
    await sender.sendMessages({ body: "after" });
    assert.equal(counted.connections, 1);
  } finally {
    Constants.defaultConnectionIdleTimeoutInMs = usual;
    await client.close();
    counted.server.close();
  }
});
