// Queues: sending, receiving, settling, peeking, scheduling, locks.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { bodies, connect, receive, until } from "./shared.js";

let client;
before(() => {
  client = connect();
});
after(() => client.close());

test("a message arrives as it was sent", async () => {
  const sender = client.createSender("plain");
  const receiver = client.createReceiver("plain");
  const sent = {
    body: { order: 17, lines: ["a", "b"] },
    messageId: "m-1",
    correlationId: "c-1",
    subject: "greeting",
    contentType: "application/json",
    to: "you",
    replyTo: "me",
    timeToLive: 60_000,
    partitionKey: "k",
    applicationProperties: { text: "é", whole: 7, real: 0.5, yes: true, long: 2 ** 40 },
  };
  await sender.sendMessages(sent);
  const [message] = await receive(receiver, 1);
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(message[name], value, name);
  assert.equal(message.deliveryCount, 0);
  assert.equal(message.state, "active");
  assert.ok(message.sequenceNumber.greaterThan(0));
  assert.ok(message.lockedUntilUtc > message.enqueuedTimeUtc);
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
});

test("a batch arrives in order, and one that is full says so", async () => {
  const sender = client.createSender("batch");
  const receiver = client.createReceiver("batch");
  const batch = await sender.createMessageBatch();
  for (let number = 0; number < 50; number += 1) assert.ok(batch.tryAddMessage({ body: number }));
  assert.equal(batch.tryAddMessage({ body: Buffer.alloc(batch.maxSizeInBytes) }), false);
  await sender.sendMessages(batch);
  await sender.sendMessages([{ body: 50 }, { body: 51 }]);
  const messages = await receive(receiver, 52);
  assert.deepEqual(bodies(messages), [...Array(52).keys()]);
  await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  assert.deepEqual(await receiver.peekMessages(1), []);
});

test("an abandoned message comes back, counted and changed", async () => {
  const sender = client.createSender("abandon");
  const receiver = client.createReceiver("abandon");
  await sender.sendMessages({ body: "again" });
  const [first] = await receive(receiver, 1);
  await receiver.abandonMessage(first, { tried: "once" });
  const [second] = await receive(receiver, 1);
  assert.equal(second.deliveryCount, 1);
  assert.equal(second.applicationProperties.tried, "once");
  assert.ok(second.sequenceNumber.equals(first.sequenceNumber));
  await receiver.completeMessage(second);
});

test("a dead-lettered message waits in the dead letters with its reason", async () => {
  const sender = client.createSender("dead");
  const receiver = client.createReceiver("dead");
  const letters = client.createReceiver("dead", { subQueueType: "deadLetter" });
  await sender.sendMessages({ body: "spoilt" });
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message, {
    deadLetterReason: "taste",
    deadLetterErrorDescription: "it was green",
    colour: "green",
  });
  const [letter] = await receive(letters, 1);
  assert.equal(letter.body, "spoilt");
  assert.equal(letter.deadLetterReason, "taste");
  assert.equal(letter.deadLetterErrorDescription, "it was green");
  assert.equal(letter.applicationProperties.colour, "green");
  await letters.completeMessage(letter);
  assert.deepEqual(await receiver.peekMessages(1), []);
});

test("a deferred message is to be had by its number, and can be settled", async () => {
  const sender = client.createSender("defer");
  const receiver = client.createReceiver("defer");
  await sender.sendMessages({ body: "later" });
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message);
  const [peeked] = await receiver.peekMessages(1);
  assert.equal(peeked.state, "deferred");
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "later");
  await receiver.completeMessage(deferred);
  await assert.rejects(receiver.receiveDeferredMessages(message.sequenceNumber), { code: "MessageNotFound" });
});

test("peeking changes nothing and shows from a number on", async () => {
  const sender = client.createSender("peek");
  const receiver = client.createReceiver("peek");
  await sender.sendMessages(["a", "b", "c"].map((body) => ({ body })));
  const all = await receiver.peekMessages(10);
  assert.deepEqual(bodies(all), ["a", "b", "c"]);
  const fromSequenceNumber = all[1].sequenceNumber;
  assert.deepEqual(bodies(await receiver.peekMessages(10, { fromSequenceNumber })), ["b", "c"]);
  assert.deepEqual(bodies(await receive(receiver, 3)), ["a", "b", "c"]);
});

test("scheduled messages come when they are due, cancelled ones do not", async () => {
  const sender = client.createSender("schedule");
  const receiver = client.createReceiver("schedule");
  const late = new Date(Date.now() + 3_600_000); // when the test is over, however slow it is
  const [cancelled] = await sender.scheduleMessages({ body: "cancelled" }, late);
  const [peeked] = await receiver.peekMessages(1);
  assert.equal(peeked.state, "scheduled");
  await sender.cancelScheduledMessages(cancelled);
  const soon = new Date(Date.now() + 1_000);
  await sender.scheduleMessages({ body: "kept" }, soon);
  const [message] = await receive(receiver, 1);
  assert.equal(message.body, "kept");
  assert.ok(message.enqueuedTimeUtc >= soon);
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(2, { fromSequenceNumber: cancelled }), []);
});

test("a renewed lock lasts longer, and a lost one cannot be used", async () => {
  const sender = client.createSender("locks");
  const receiver = client.createReceiver("locks", { maxAutoLockRenewalDurationInMs: 0 });
  await sender.sendMessages({ body: "held" });
  const [message] = await receive(receiver, 1);
  const first = message.lockedUntilUtc;
  await until(async () => (await receiver.renewMessageLock(message)) > first);
  assert.ok(message.lockedUntilUtc > first);
  await receiver.completeMessage(message);
  await assert.rejects(receiver.renewMessageLock(message));
});

test("receive and delete leaves nothing to settle", async () => {
  const sender = client.createSender("delete");
  const receiver = client.createReceiver("delete", { receiveMode: "receiveAndDelete" });
  await sender.sendMessages([{ body: 1 }, { body: 2 }]);
  assert.deepEqual(bodies(await receive(receiver, 2)), [1, 2]);
  assert.deepEqual(await receiver.peekMessages(1), []);
});

test("a subscription streams, and completes what its handler has done", async () => {
  const sender = client.createSender("stream");
  const receiver = client.createReceiver("stream");
  const seen = [];
  const errors = [];
  const handlers = {
    processMessage: async (message) => {
      seen.push(message.body);
      if (message.body === 7 && message.deliveryCount === 0) throw new Error("the handler stumbles once");
    },
    processError: async ({ error }) => errors.push(error.message),
  };
  const subscription = receiver.subscribe(handlers, { maxConcurrentCalls: 4, autoCompleteMessages: true });
  for (let number = 0; number < 30; number += 10) {
    await sender.sendMessages([...Array(10).keys()].map((place) => ({ body: number + place })));
  }
  // All of them, and the one that failed twice: the client abandons what a handler throws on.
  await until(() => seen.length === 31);
  // Each receiver peeks on from where it was, so a new one looks at the whole queue.
  await until(async () => (await client.createReceiver("stream").peekMessages(1)).length === 0);
  await subscription.close();
  assert.deepEqual([...new Set(seen)].sort((a, b) => a - b), [...Array(30).keys()]);
  assert.equal(seen.filter((body) => body === 7).length, 2);
  assert.deepEqual(errors, ["the handler stumbles once"]);
});

test("what is not there is said to be missing", async () => {
  const sender = client.createSender("no-such-queue");
  await assert.rejects(sender.sendMessages({ body: "" }), { code: "MessagingEntityNotFound" });
});
