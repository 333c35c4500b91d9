// AMQP over WebSockets, as behind a firewall that opens port 443 alone: directly, and through an HTTP proxy.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { HttpsProxyAgent } from "https-proxy-agent";
import WebSocket from "ws";
import { bodies, connectionString, receive } from "./shared.js";

function connect(string, proxy) {
  const webSocketConstructorOptions = proxy ? { agent: new HttpsProxyAgent(proxy) } : {};
  return new ServiceBusClient(string, {
    retryOptions: { maxRetries: 0 },
    webSocketOptions: { webSocket: WebSocket, webSocketConstructorOptions },
  });
}

async function sendAndReceive(client, queue) {
  const sent = ["small", "x".repeat(200_000), ...[...Array(50).keys()].map((number) => `message ${number}`)];
  const sender = client.createSender(queue);
  for (const body of sent) await sender.sendMessages({ body });
  const receiver = client.createReceiver(queue);
  const found = await receive(receiver, sent.length);
  assert.deepEqual(bodies(found), sent);
  for (const message of found) await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
}

test("messages go both ways", async () => {
  const client = connect(connectionString);
  await sendAndReceive(client, "direct");
  await client.close();
});

test("messages go both ways through a proxy, to the port of Azure", async () => {
  const client = connect(process.env.AZURE_LIKE_CONNECTION_STRING, process.env.PROXY);
  await sendAndReceive(client, "proxied");
  await client.close();
});

test("a proxy that wants credentials lets nobody through without them", async () => {
  const client = connect(process.env.AZURE_LIKE_CONNECTION_STRING, process.env.PROXY_WITHOUT_CREDENTIALS);
  await assert.rejects(client.createSender("refused").sendMessages({ body: "never" }));
  await client.close();
});
