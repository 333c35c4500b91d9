// The administration client, over TLS: what it parses, and what it signs.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { connectionString } from "./shared.js";

let admin;
before(() => {
  // The client would drop the port with this flag.
  admin = new ServiceBusAdministrationClient(connectionString.replace(/UseDevelopmentEmulator=true;?/, ""));
});

async function all(listing) {
  const found = [];
  for await (const each of listing) found.push(each);
  return found;
}

test("subscriptions and rules are listed with their topics", async () => {
  await admin.createTopic("events");
  await admin.createSubscription("events", "some");
  await admin.createRule("events", "some", "acts", { correlationId: "c" }, { sqlExpression: "SET a='b'" });
  const subscriptions = await all(admin.listSubscriptions("events"));
  assert.deepEqual(subscriptions.map((one) => [one.topicName, one.subscriptionName]), [["events", "some"]]);
  const counts = await all(admin.listSubscriptionsRuntimeProperties("events"));
  assert.deepEqual(counts.map((one) => [one.topicName, one.subscriptionName]), [["events", "some"]]);
  const rules = await all(admin.listRules("events", "some"));
  assert.deepEqual(rules.map((rule) => rule.name), ["$Default", "acts"]);
  assert.equal(rules[1].action.sqlExpression, "SET a='b'");
});

test("an entity with sessions forwards, and an entity may forward to itself", async () => {
  await admin.createQueue("target");
  const queue = await admin.createQueue("source", { forwardTo: "target", requiresSession: true });
  assert.match(queue.forwardTo, /target$/);
  queue.forwardTo = "source";
  assert.match((await admin.updateQueue(queue)).forwardTo, /source$/);
});

test("a partitioned entity has the size of all its partitions", async () => {
  const queue = await admin.createQueue("parts", { enablePartitioning: true, maxSizeInMegabytes: 3072 });
  assert.equal(queue.maxSizeInMegabytes, 49152);
  assert.equal((await admin.updateQueue(queue)).maxSizeInMegabytes, 49152);
  assert.equal((await admin.createTopic("parted", { enablePartitioning: true })).supportOrdering, false);
});

test("what exists cannot be made again, and what does not exist is not found", async () => {
  await admin.createQueue("twice");
  await assert.rejects(admin.createQueue("twice"), { code: "MessageEntityAlreadyExistsError", statusCode: 409 });
  await assert.rejects(admin.getQueue("missing"), { code: "MessageEntityNotFoundError" });
});
