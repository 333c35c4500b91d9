// Topics, subscriptions, and their rules over AMQP.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { bodies, connect, receive } from "./shared.js";

let client;
before(() => {
  client = connect();
});
after(() => client.close());

async function rulesOf(manager) {
  const found = [];
  for await (const rule of manager.listRules()) found.push(rule);
  return found;
}

test("each subscription gets its own copy", async () => {
  const sender = client.createSender("copies");
  await sender.sendMessages([{ body: 1 }, { body: 2 }]);
  for (const name of ["first", "second"]) {
    const receiver = client.createReceiver("copies", name);
    const messages = await receive(receiver, 2);
    assert.deepEqual(bodies(messages), [1, 2]);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
  }
});

test("rules are made, listed and removed, and decide what comes", async () => {
  const manager = client.createRuleManager("ruled", "some");
  assert.deepEqual((await rulesOf(manager)).map((rule) => rule.name), ["$Default"]);
  await manager.deleteRule("$Default");
  await manager.createRule("sql", { sqlExpression: "colour = 'red' AND quantity > 5" });
  await manager.createRule("correlation", {
    correlationId: "c",
    applicationProperties: { whole: 7, yes: true, text: "x" },
  });
  const rules = await rulesOf(manager);
  assert.deepEqual(rules.map((rule) => rule.name), ["correlation", "sql"]);
  assert.equal(rules[1].filter.sqlExpression, "colour = 'red' AND quantity > 5");
  assert.equal(rules[0].filter.correlationId, "c");
  assert.deepEqual({ ...rules[0].filter.applicationProperties }, { whole: 7, yes: true, text: "x" });
  await assert.rejects(manager.createRule("sql", { sqlExpression: "1=1" }), { code: "MessagingEntityAlreadyExists" });

  const sender = client.createSender("ruled");
  const receiver = client.createReceiver("ruled", "some");
  await sender.sendMessages([
    { body: "red and many", applicationProperties: { colour: "red", quantity: 6 } },
    { body: "red and few", applicationProperties: { colour: "red", quantity: 5 } },
    { body: "correlated", correlationId: "c", applicationProperties: { whole: 7, yes: true, text: "x" } },
    { body: "nearly", correlationId: "c", applicationProperties: { whole: 8, yes: true, text: "x" } },
  ]);
  assert.deepEqual(bodies(await receive(receiver, 2)), ["red and many", "correlated"]);

  await manager.deleteRule("sql");
  assert.deepEqual((await rulesOf(manager)).map((rule) => rule.name), ["correlation"]);
  await assert.rejects(manager.deleteRule("sql"), { code: "MessagingEntityNotFound" });
  await assert.rejects(manager.createRule("broken", { sqlExpression: "colour = = 'red'" }));
});

test("a rule's action changes the copy that its subscription gets", async () => {
  const manager = client.createRuleManager("acting", "some");
  await manager.deleteRule("$Default");
  await manager.createRule("blue", { sqlExpression: "colour = 'blue'" }, { sqlExpression: "Set priority = 'high'" });
  const [rule] = await rulesOf(manager);
  assert.equal(rule.action.sqlExpression, "Set priority = 'high'");
  await client.createSender("acting").sendMessages([
    { body: 1, applicationProperties: { colour: "red" } },
    { body: 2, applicationProperties: { colour: "blue" } },
  ]);
  const [message] = await receive(client.createReceiver("acting", "some"), 1);
  assert.deepEqual({ ...message.applicationProperties }, { colour: "blue", priority: "high" });
});

test("a topic's scheduled messages are published when they are due", async () => {
  const sender = client.createSender("scheduled");
  const receiver = client.createReceiver("scheduled", "all");
  const soon = new Date(Date.now() + 1_000);
  await sender.scheduleMessages({ body: "now" }, soon);
  const early = await receiver.peekMessages(1);
  if (new Date() < soon) assert.deepEqual(early, []); // on a slow machine it may be due by now
  const [message] = await receive(receiver, 1);
  assert.ok(message.enqueuedTimeUtc >= soon);
});

test("a subscription with sessions hands out sessions", async () => {
  const sender = client.createSender("sessions");
  await sender.sendMessages({ body: "s", sessionId: "mine" });
  const receiver = await client.acceptNextSession("sessions", "each");
  assert.equal(receiver.sessionId, "mine");
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message);
  await receiver.close();
  const letters = client.createReceiver("sessions", "each", { subQueueType: "deadLetter" });
  assert.deepEqual(bodies(await receive(letters, 1)), ["s"]);
});
