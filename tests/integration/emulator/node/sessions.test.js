// Sessions: by id and next available, their state, their locks.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { bodies, connect, receive } from "./shared.js";

let client;
before(() => {
  client = connect();
});
after(() => client.close());

test("a session is received by its id, in order and apart from others", async () => {
  const sender = client.createSender("by-id");
  const messages = ["one", "two", "one"].map((sessionId, body) => ({ body, sessionId }));
  await sender.sendMessages(messages);
  const receiver = await client.acceptSession("by-id", "one");
  assert.equal(receiver.sessionId, "one");
  const found = await receive(receiver, 2);
  assert.deepEqual(bodies(found), [0, 2]);
  await Promise.all(found.map((message) => receiver.completeMessage(message)));
  assert.deepEqual(bodies(await receiver.peekMessages(10)), []);
  await assert.rejects(client.acceptSession("by-id", "one"), { code: "SessionCannotBeLocked" });
  await receiver.close();
  const again = await client.acceptSession("by-id", "one");
  await again.close();
});

test("the next sessions are those with messages, each to one receiver", async () => {
  const sender = client.createSender("next");
  await sender.sendMessages(["a", "b"].map((sessionId) => ({ body: sessionId, sessionId })));
  const receivers = [await client.acceptNextSession("next"), await client.acceptNextSession("next")];
  assert.deepEqual(receivers.map((receiver) => receiver.sessionId).sort(), ["a", "b"]);
  for (const receiver of receivers) {
    const [message] = await receive(receiver, 1);
    assert.equal(message.body, receiver.sessionId);
    await receiver.completeMessage(message);
  }
  await Promise.all(receivers.map((receiver) => receiver.close()));
});

test("whoever waits for a session gets the one that comes", async () => {
  const sender = client.createSender("wait");
  const waiting = client.acceptNextSession("wait");
  await sender.sendMessages({ body: "here", sessionId: "late" });
  const receiver = await waiting;
  assert.equal(receiver.sessionId, "late");
  assert.deepEqual(bodies(await receive(receiver, 1)), ["here"]);
  await receiver.close();
});

test("a session keeps its state and its lock can be renewed", async () => {
  const receiver = await client.acceptSession("state", "s");
  assert.equal(await receiver.getSessionState(), null);
  await receiver.setSessionState({ step: 2 });
  const until = receiver.sessionLockedUntilUtc;
  assert.ok((await receiver.renewSessionLock()) >= until);
  await receiver.close();
  const next = await client.acceptSession("state", "s");
  assert.deepEqual(await next.getSessionState(), { step: 2 });
  await next.setSessionState(null);
  assert.equal(await next.getSessionState(), null);
  await next.close();
});

test("messages of a session can be deferred and dead-lettered", async () => {
  const sender = client.createSender("settle");
  await sender.sendMessages(["deferred", "dead", "abandoned"].map((body) => ({ body, sessionId: "s" })));
  const receiver = await client.acceptSession("settle", "s");
  const [first, second, third] = await receive(receiver, 3);
  await receiver.deferMessage(first);
  await receiver.deadLetterMessage(second, { deadLetterReason: "why not" });
  await receiver.abandonMessage(third);
  const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
  await receiver.completeMessage(deferred);
  const [again] = await receive(receiver, 1);
  assert.equal(again.body, "abandoned");
  assert.equal(again.deliveryCount, 1);
  await receiver.completeMessage(again);
  await receiver.close();
  const letters = client.createReceiver("settle", { subQueueType: "deadLetter" });
  const [letter] = await receive(letters, 1);
  assert.equal(letter.deadLetterReason, "why not");
  assert.equal(letter.sessionId, "s");
});

test("a message without a session id is refused where sessions are required", async () => {
  const sender = client.createSender("by-id");
  await assert.rejects(sender.sendMessages({ body: "nobody's" }));
});
