// The scenario of scenario.py for one installed version of @azure/service-bus.
//
// `node scenario.js FOLDER PLACE`: FOLDER has the package in node_modules, PLACE is JSON with connection_string, host,
// port and ca_file. It prints a JSON object: for each part null, or the error.
//
// `node scenario.js FOLDER types PLACE` only sends messages with properties and bodies of every type to "typed".

"use strict";
const assert = require("node:assert");
const path = require("node:path");
const tls = require("node:tls");

const [folder, onlyTypes, place] = [process.argv[2], process.argv[3] === "types", JSON.parse(process.argv.at(-1))];
const packages = path.join(path.resolve(folder), "node_modules");
const { ServiceBusClient } = require(path.join(packages, "@azure/service-bus"));
const version = require(path.join(packages, "@azure/service-bus/package.json")).version;

const WAIT = 20_000;
const LARGE = 200_000; // bytes of a message that takes several frames

/** The connection string. Versions that do not know UseDevelopmentEmulator=true use TLS, on a port of their own. */
function connectionString() {
  const [major, minor, patch] = version.split(/[.-]/).map(Number);
  if (major * 10_000 + minor * 100 + patch >= 70_905) return place.connection_string;
  const connect = tls.connect;
  tls.connect = (port, host, options, done) => connect({ ...options, port: place.port, host: place.host }, done);
  return place.connection_string.replace("UseDevelopmentEmulator=true;", "").replace(`:${place.port};`, ";");
}

/** Receives exactly so many messages, in as many calls as that takes. */
async function take(receiver, count) {
  const found = [];
  while (found.length < count) {
    const got = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: WAIT });
    assert(got.length, `${found.length} of ${count} messages arrived within ${WAIT} ms`);
    found.push(...got);
  }
  return found;
}

/** Runs a step with a sender or receiver, and closes it. */
async function using(link, step) {
  try {
    return await step(link);
  } finally {
    await link.close();
  }
}

const bodies = (messages) => messages.map((message) => String(message.body));

class Scenario {
  constructor(client) {
    this.client = client;
  }

  async send() {
    await using(this.client.createSender("orders"), async (sender) => {
      await sender.sendMessages({ body: "one", applicationProperties: { colour: "red", n: 7 } });
      await sender.sendMessages([{ body: "two" }, { body: "three" }]);
      const batch = await sender.createMessageBatch();
      assert(batch.tryAddMessage({ body: "four" }));
      await sender.sendMessages(batch);
      await sender.sendMessages({ body: "x".repeat(LARGE) });
    });
  }

  async receive() {
    await using(this.client.createReceiver("orders"), async (receiver) => {
      const found = await take(receiver, 5);
      assert.deepStrictEqual(bodies(found), ["one", "two", "three", "four", "x".repeat(LARGE)]);
      assert.deepStrictEqual({ ...found[0].applicationProperties }, { colour: "red", n: 7 });
      for (const message of found) await receiver.completeMessage(message);
    });
    assert.strictEqual(await this.count(), 0);
  }

  async settle() {
    await this.put("again");
    await using(this.client.createReceiver("orders"), async (receiver) => {
      let [message] = await take(receiver, 1);
      await receiver.renewMessageLock(message);
      await receiver.abandonMessage(message);
      [message] = await take(receiver, 1);
      assert.strictEqual(message.deliveryCount, 1);
      await receiver.completeMessage(message);
    });
    assert.strictEqual(await this.count(), 0);
  }

  async defer() {
    await this.put("completed", "dead-lettered", "abandoned");
    await using(this.client.createReceiver("orders"), async (receiver) => {
      const numbers = [];
      for (const message of await take(receiver, 3)) {
        numbers.push(message.sequenceNumber);
        await receiver.deferMessage(message);
      }
      const [first, second, third] = await receiver.receiveDeferredMessages(numbers);
      assert.strictEqual(first.body, "completed");
      await receiver.completeMessage(first);
      await receiver.deadLetterMessage(second, { deadLetterReason: "why" });
      await receiver.abandonMessage(third);
      const [again] = await receiver.receiveDeferredMessages(numbers[2]);
      await receiver.completeMessage(again);
    });
    assert.strictEqual(await this.count(), 0);
    await this.readDeadLetter("dead-lettered", "why");
  }

  async peek() {
    await this.put("one", "two");
    await using(this.client.createReceiver("orders"), async (receiver) => {
      const peeked = await receiver.peekMessages(10);
      assert.deepStrictEqual(bodies(peeked), ["one", "two"]);
      const later = await receiver.peekMessages(10, { fromSequenceNumber: peeked[1].sequenceNumber });
      assert.deepStrictEqual(bodies(later), ["two"]);
      for (const message of await take(receiver, 2)) await receiver.completeMessage(message);
    });
  }

  async schedule() {
    await using(this.client.createSender("orders"), async (sender) => {
      const inAnHour = new Date(Date.now() + 3_600_000);
      const numbers = await sender.scheduleMessages([{ body: "cancelled" }, { body: "cancelled too" }], inAnHour);
      assert.strictEqual(numbers.length, 2);
      assert.strictEqual(await this.count(), 2);
      await sender.cancelScheduledMessages(numbers);
      assert.strictEqual(await this.count(), 0);
      await sender.scheduleMessages({ body: "soon" }, new Date(Date.now() + 1000));
    });
    await using(this.client.createReceiver("orders"), async (receiver) => {
      const [message] = await take(receiver, 1);
      assert.strictEqual(message.body, "soon");
      await receiver.completeMessage(message);
    });
  }

  async sessions() {
    await using(this.client.createSender("chats"), (sender) =>
      sender.sendMessages(["one", "two"].map((body) => ({ body, sessionId: "a" }))),
    );
    await using(await this.client.acceptSession("chats", "a"), async (session) => {
      await session.setSessionState("half");
      assert.strictEqual(String(await session.getSessionState()), "half");
      await session.renewSessionLock();
      const [one, two] = await take(session, 2);
      await session.completeMessage(one);
      await session.deferMessage(two);
      const [deferred] = await session.receiveDeferredMessages(two.sequenceNumber);
      await session.completeMessage(deferred);
    });
  }

  async dead_letter() {
    await this.put("bad");
    await using(this.client.createReceiver("orders"), async (receiver) => {
      const [message] = await take(receiver, 1);
      await receiver.deadLetterMessage(message, { deadLetterReason: "broken", deadLetterErrorDescription: "really" });
    });
    await this.readDeadLetter("bad", "broken");
  }

  async readDeadLetter(body, reason) {
    await using(this.client.createReceiver("orders", { subQueueType: "deadLetter" }), async (receiver) => {
      const [message] = await take(receiver, 1);
      assert.deepStrictEqual([message.body, message.deadLetterReason], [body, reason]);
      await receiver.completeMessage(message);
    });
  }

  async put(...texts) {
    await using(this.client.createSender("orders"), (sender) => sender.sendMessages(texts.map((body) => ({ body }))));
  }

  async count() {
    const peek = (receiver) => receiver.peekMessages(10);
    return (await using(this.client.createReceiver("orders"), peek)).length;
  }
}

const TYPES = {
  string: "ärger",
  yes: true,
  int: -5,
  long: 2 ** 40,
  double: 1.5,
  date: new Date("2026-01-02T03:04:05.678Z"),
  none: null,
};

async function sendTypes(client) {
  await using(client.createSender("typed"), async (sender) => {
    await sender.sendMessages({
      body: { text: "plain" },
      messageId: "plain",
      sessionId: "s",
      timeToLive: 3_600_000,
      subject: "s",
      correlationId: "c",
      applicationProperties: TYPES,
    });
    for (const [bodyType, body] of [
      ["data", Buffer.from("a")],
      ["value", { list: [1, "x"], yes: true }],
      ["sequence", [1, "x", null]],
    ]) {
      await sender.sendMessages({ bodyType, body, messageId: bodyType, applicationProperties: TYPES });
    }
  });
  console.log(JSON.stringify({ types: null }));
  process.exit();
}

async function main() {
  const results = {};
  const client = new ServiceBusClient(connectionString(), { retryOptions: { maxRetries: 1 } });
  if (onlyTypes) return sendTypes(client);
  const scenario = new Scenario(client);
  for (const part of ["send", "receive", "settle", "defer", "peek", "schedule", "sessions", "dead_letter"]) {
    try {
      await scenario[part]();
      results[part] = null;
    } catch (error) {
      results[part] = `${error.name}: ${error.message}`.slice(0, 300);
      break; // later parts would find the messages of this one
    }
  }
  console.log(JSON.stringify(results));
  process.exit();
}

main();
