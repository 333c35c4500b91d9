// What a generic AMQP client does, here rhea: the parts of generic.py without transactions, which it lacks.
//
// `node generic.js FOLDER PLACE`: FOLDER has rhea in node_modules, PLACE is JSON with host, port, policy and key. It prints
// a JSON object: for each part null, or the error. `node generic.js FOLDER types PLACE` only sends messages with properties
// and bodies of every type to the queue "typed".

"use strict";
const assert = require("node:assert");
const path = require("node:path");

const [folder, onlyTypes, place] = [process.argv[2], process.argv[3] === "types", JSON.parse(process.argv.at(-1))];
const rhea = require(path.join(path.resolve(folder), "node_modules", "rhea"));
const { types } = rhea;

const WAIT = 20_000;

/** The next event of one of these names, or the error of a link or connection that ends. */
function next(emitter, ...names) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${names} within ${WAIT} ms`)), WAIT);
    for (const name of names) {
      emitter.once(name, (context) => {
        clearTimeout(timer);
        resolve(context);
      });
    }
    for (const name of ["sender_error", "receiver_error", "connection_error", "disconnected"]) {
      emitter.once(name, (context) => {
        clearTimeout(timer);
        const { sender, receiver, connection, error } = context;
        reject((sender ?? receiver ?? connection)?.error ?? error ?? new Error(name));
      });
    }
  });
}

async function connect() {
  const { host, port, policy: username, key: password } = place;
  const connection = rhea.create_container().connect({ host, port, username, password, reconnect: false });
  await next(connection, "connection_open");
  return connection;
}

async function close(connection) {
  connection.removeAllListeners("disconnected");
  connection.close();
  await next(connection, "connection_close");
}

async function openSender(connection, address) {
  const sender = connection.open_sender(address);
  if (!sender.sendable()) await next(sender, "sendable");
  return sender;
}

/** Sends a message and returns the name of its outcome. */
async function put(sender, message) {
  sender.send(message);
  const { delivery, ...rest } = await next(sender, "accepted", "rejected", "released", "modified");
  return delivery.remote_state ?? rest;
}

/** Receives one message. Nothing is settled. */
async function take(receiver) {
  receiver.add_credit(1);
  return next(receiver, "message");
}

function openReceiver(connection, source, options = {}) {
  return connection.open_receiver({ source, credit_window: 0, autoaccept: false, ...options });
}

const PARTS = {
  async send(connection) {
    const sender = await openSender(connection, "orders");
    for (const body of ["one", "two"]) await put(sender, { body });
  },

  /** Receives both messages, abandons one and completes both. */
  async receive(connection) {
    const receiver = openReceiver(connection, "orders");
    const first = await take(receiver);
    assert.strictEqual(first.message.body, "one");
    first.delivery.modified({ delivery_failed: true });
    const found = [];
    for (let count = 0; count < 2; count++) {
      const { message, delivery } = await take(receiver);
      found.push([message.body, message.delivery_count]);
      delivery.accept();
    }
    assert.deepStrictEqual(found.sort(), [["one", 1], ["two", 0]]);
  },

  async dead_letter(connection) {
    await put(await openSender(connection, "orders"), { body: "bad" });
    const { delivery } = await take(openReceiver(connection, "orders"));
    delivery.reject({ condition: "com.microsoft:dead-letter", description: "broken" });
    const letter = await take(openReceiver(connection, "orders/$DeadLetterQueue"));
    assert.strictEqual(letter.message.body, "bad");
    letter.delivery.accept();
  },

  async sessions(connection) {
    const sender = await openSender(connection, "chats");
    for (const [group_id, body] of [["a", "1"], ["b", "2"], ["a", "3"]]) await put(sender, { group_id, body });
    const filter = { "com.microsoft:session-filter": "a" };
    const receiver = openReceiver(connection, { address: "chats", filter });
    for (const body of ["1", "3"]) {
      const { message, delivery } = await take(receiver);
      assert.deepStrictEqual([message.group_id, message.body], ["a", body]);
      delivery.accept();
    }
  },

  /** A request that names a temporary queue for its reply. */
  async temporary_queue(connection) {
    const replies = openReceiver(connection, { dynamic: true });
    await next(replies, "receiver_open");
    await put(await openSender(connection, "orders"), { body: "ask", reply_to: replies.source.address });
    const request = await take(openReceiver(connection, "orders"));
    request.delivery.accept();
    await put(await openSender(connection, request.message.reply_to), { body: "answer" });
    const { message, delivery } = await take(replies);
    assert.strictEqual(message.body, "answer");
    delivery.accept();
  },
};

async function sendTypes(connection) {
  const application_properties = {
    string: "ärger",
    symbol: types.wrap_symbol("sym"),
    yes: true,
    binary: types.wrap_binary(Buffer.from([0xff, 0xfe])),
    char: types.wrap_char(99),
    byte: types.wrap_byte(-128),
    short: types.wrap_short(-32768),
    int: types.wrap_int(-5),
    long: types.wrap_long(2 ** 40),
    ubyte: types.wrap_ubyte(255),
    ushort: types.wrap_ushort(65535),
    uint: types.wrap_uint(2 ** 31),
    ulong: types.wrap_ulong(2 ** 40),
    float: types.wrap_float(1.5),
    double: types.wrap_double(1e300),
    timestamp: types.wrap_timestamp(1_767_323_045_678),
    uuid: types.wrap_uuid(Buffer.alloc(16, 7)),
    timespan: types.wrap_described(types.wrap_long(36_000_000_000), types.wrap_symbol("com.microsoft:timespan")),
  };
  const bodies = {
    text: "plain",
    data: rhea.message.data_section(Buffer.from("a")),
    parts: rhea.message.data_sections([Buffer.from("a"), Buffer.from("b")]),
    sequence: rhea.message.sequence_section([1, "x"]),
    value: { list: [1, "x"], yes: true },
  };
  const sender = await openSender(connection, "typed");
  for (const [message_id, body] of Object.entries(bodies)) {
    await put(sender, {
      body,
      message_id,
      application_properties,
      subject: "s",
      group_id: "s",
      durable: true,
      ttl: 3_600_000,
      footer: { sum: 3 },
    });
  }
}

async function main() {
  const results = {};
  for (const [part, run] of Object.entries(onlyTypes ? { types: sendTypes } : PARTS)) {
    try {
      const connection = await connect();
      await run(connection);
      await close(connection);
      results[part] = null;
    } catch (error) {
      results[part] = `${error.name ?? error.condition}: ${error.message ?? error.description}`.slice(0, 300);
      break; // later parts would find the messages of this one
    }
  }
  console.log(JSON.stringify(results));
  process.exit();
}

main();
