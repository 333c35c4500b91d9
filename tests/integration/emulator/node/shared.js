// What the tests share: a client, and ways to wait for a condition.

import { ServiceBusClient } from "@azure/service-bus";

export const connectionString = process.env.SERVICE_BUS_CONNECTION_STRING;

/** A client that does not retry: what fails, fails where we can see it. */
export function connect(string = connectionString) {
  return new ServiceBusClient(string, { retryOptions: { maxRetries: 0 } });
}

/** Exactly so many messages; an error if they do not come. */
export async function receive(receiver, count, within = 40_000) {
  const found = [];
  const deadline = Date.now() + within;
  while (found.length < count) {
    const left = deadline - Date.now();
    if (left <= 0) throw new Error(`${found.length} of ${count} messages came`);
    found.push(...(await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: left })));
  }
  return found;
}

export async function until(done, within = 40_000) {
  const deadline = Date.now() + within;
  while (!(await done())) {
    if (Date.now() > deadline) throw new Error("that took too long");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export const bodies = (messages) => messages.map((message) => message.body);
