// Receive a hundred, send them on in batches, complete them together: as the samples of @azure/service-bus show.
// Says "ready", how many were moved after each turn, and at last "done" or "stopped REASON"; ends when stdin does.

const { ServiceBusClient } = require("@azure/service-bus");

const task = JSON.parse(process.env.TASK);
const home = new ServiceBusClient(task.primary);
const away = new ServiceBusClient(task.secondary);
const senders = new Map();

const say = (word) => process.stdout.write(`${word}\n`);

function byDestination(messages) {
  const groups = new Map();
  for (const message of messages) {
    const path = message.applicationProperties["x-ms-path"];
    if (!groups.has(path)) groups.set(path, []);
    groups.get(path).push(restored(message));
  }
  return [...groups];
}

function restored({ body, messageId, correlationId, subject, contentType, applicationProperties }) {
  const { "x-ms-path": _, ...properties } = applicationProperties;
  return { body, messageId, correlationId, subject, contentType, applicationProperties: properties };
}

async function send(path, messages) {
  if (!senders.has(path)) senders.set(path, home.createSender(path));
  const sender = senders.get(path);
  let batch = await sender.createMessageBatch();
  for (const message of messages) {
    if (batch.tryAddMessage(message)) continue;
    await sender.sendMessages(batch);
    batch = await sender.createMessageBatch();
    if (!batch.tryAddMessage(message)) throw new Error("a message is too large for any batch");
  }
  await sender.sendMessages(batch);
}

async function run() {
  const receiver = away.createReceiver(task.queues[0]);
  for (let moved = 0; moved < task.count; ) {
    const messages = await receiver.receiveMessages(100, { maxWaitTimeInMs: 5000 });
    if (!messages.length) break;
    await Promise.all(byDestination(messages).map(([path, group]) => send(path, group)));
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    moved += messages.length;
    say(messages.length);
  }
}

process.stdin.resume().on("end", () => process.exit());
say("ready");
run().then(
  () => say("done"),
  (error) => say(`stopped ${error.code ?? error.name}`),
);
