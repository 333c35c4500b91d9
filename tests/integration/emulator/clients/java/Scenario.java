import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;

/**
 * The scenario of scenario.py for azure-messaging-servicebus, and a part about transactions.
 *
 * <p>`java -cp 'FOLDER/*' Scenario.java CONNECTION_STRING`. It prints a JSON object: for each part null, or the error.
 * With `types` before the connection string it only sends messages with properties and bodies of every type to "typed".
 */
public class Scenario {
    static final Duration WAIT = Duration.ofSeconds(20);
    static final int LARGE = 200_000; // bytes of a message that takes several frames

    interface Part {
        void run() throws Exception;
    }

    final String connectionString;

    Scenario(String connectionString) {
        this.connectionString = connectionString;
    }

    ServiceBusClientBuilder builder() {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMaxRetries(1).setTryTimeout(Duration.ofSeconds(30));
        return new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(retries);
    }

    ServiceBusSenderClient sender(String queue) {
        return builder().sender().queueName(queue).buildClient();
    }

    ServiceBusReceiverClient receiver(String queue) {
        return builder().receiver().queueName(queue).disableAutoComplete().buildClient();
    }

    void send() {
        try (ServiceBusSenderClient sender = sender("orders")) {
            ServiceBusMessage one = new ServiceBusMessage("one");
            one.getApplicationProperties().put("colour", "red");
            one.getApplicationProperties().put("n", 7);
            sender.sendMessage(one);
            sender.sendMessages(Arrays.asList(new ServiceBusMessage("two"), new ServiceBusMessage("three")));
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            check(batch.tryAddMessage(new ServiceBusMessage("four")), "the batch takes a message");
            sender.sendMessages(batch);
            sender.sendMessage(new ServiceBusMessage("x".repeat(LARGE)));
        }
    }

    void receive() {
        try (ServiceBusReceiverClient receiver = receiver("orders")) {
            List<ServiceBusReceivedMessage> found = take(receiver, 5);
            equal(bodies(found), List.of("one", "two", "three", "four", "x".repeat(LARGE)));
            equal(found.get(0).getApplicationProperties(), Map.of("colour", "red", "n", 7));
            found.forEach(receiver::complete);
        }
        equal(count("orders"), 0);
    }

    void settle() {
        put("again");
        try (ServiceBusReceiverClient receiver = receiver("orders")) {
            ServiceBusReceivedMessage message = take(receiver, 1).get(0);
            receiver.renewMessageLock(message);
            receiver.abandon(message);
            message = take(receiver, 1).get(0);
            equal(message.getDeliveryCount(), 1L);
            receiver.complete(message);
        }
        equal(count("orders"), 0);
    }

    void defer() {
        put("completed", "dead-lettered", "abandoned");
        try (ServiceBusReceiverClient receiver = receiver("orders")) {
            List<Long> numbers = new ArrayList<>();
            for (ServiceBusReceivedMessage message : take(receiver, 3)) {
                numbers.add(message.getSequenceNumber());
                receiver.defer(message);
            }
            List<ServiceBusReceivedMessage> deferred =
                    receiver.receiveDeferredMessageBatch(numbers).stream().collect(Collectors.toList());
            equal(bodies(deferred).get(0), "completed");
            receiver.complete(deferred.get(0));
            receiver.deadLetter(deferred.get(1), new DeadLetterOptions().setDeadLetterReason("why"));
            receiver.abandon(deferred.get(2));
            receiver.complete(receiver.receiveDeferredMessage(numbers.get(2)));
        }
        equal(count("orders"), 0);
        readDeadLetter("dead-lettered", "why");
    }

    void peek() {
        put("one", "two");
        try (ServiceBusReceiverClient receiver = receiver("orders")) {
            List<ServiceBusReceivedMessage> peeked = receiver.peekMessages(10).stream().collect(Collectors.toList());
            equal(bodies(peeked), List.of("one", "two"));
            long second = peeked.get(1).getSequenceNumber();
            equal(bodies(receiver.peekMessages(10, second).stream().collect(Collectors.toList())), List.of("two"));
            take(receiver, 2).forEach(receiver::complete);
        }
    }

    void schedule() {
        try (ServiceBusSenderClient sender = sender("orders")) {
            List<ServiceBusMessage> later =
                    List.of(new ServiceBusMessage("cancelled"), new ServiceBusMessage("cancelled too"));
            List<Long> numbers = new ArrayList<>();
            sender.scheduleMessages(later, OffsetDateTime.now().plusHours(1)).forEach(numbers::add);
            equal(numbers.size(), 2);
            equal(count("orders"), 2);
            sender.cancelScheduledMessages(numbers);
            equal(count("orders"), 0);
            sender.scheduleMessage(new ServiceBusMessage("soon"), OffsetDateTime.now().plusSeconds(1));
        }
        try (ServiceBusReceiverClient receiver = receiver("orders")) {
            ServiceBusReceivedMessage message = take(receiver, 1).get(0);
            equal(message.getBody().toString(), "soon");
            receiver.complete(message);
        }
    }

    void sessions() {
        try (ServiceBusSenderClient sender = sender("chats")) {
            for (String text : List.of("one", "two")) {
                sender.sendMessage(new ServiceBusMessage(text).setSessionId("a"));
            }
        }
        try (var chats = builder().sessionReceiver().queueName("chats").disableAutoComplete().buildClient();
                ServiceBusReceiverClient session = chats.acceptSession("a")) {
            session.setSessionState("half".getBytes());
            equal(new String(session.getSessionState()), "half");
            session.renewSessionLock();
            List<ServiceBusReceivedMessage> found = take(session, 2);
            session.complete(found.get(0));
            session.defer(found.get(1));
            session.complete(session.receiveDeferredMessage(found.get(1).getSequenceNumber()));
        }
    }

    void deadLetter() {
        put("bad");
        try (ServiceBusReceiverClient receiver = receiver("orders")) {
            DeadLetterOptions why =
                    new DeadLetterOptions().setDeadLetterReason("broken").setDeadLetterErrorDescription("really");
            receiver.deadLetter(take(receiver, 1).get(0), why);
        }
        readDeadLetter("bad", "broken");
    }

    /** Across two entities: a receive from orders and a send to bills, rolled back and committed. */
    void transactions() {
        put("paid");
        ServiceBusClientBuilder shared = builder().enableCrossEntityTransactions();
        try (ServiceBusReceiverClient receiver =
                        shared.receiver().queueName("orders").disableAutoComplete().buildClient();
                ServiceBusSenderClient sender = shared.sender().queueName("bills").buildClient()) {
            ServiceBusReceivedMessage message = take(receiver, 1).get(0);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            sender.sendMessage(new ServiceBusMessage("never"), transaction);
            receiver.rollbackTransaction(transaction);
            equal(count("bills"), 0);
            transaction = receiver.createTransaction();
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(new ServiceBusMessage("bill"), transaction);
            sender.sendMessages(List.of(new ServiceBusMessage("bill"), new ServiceBusMessage("bill")), transaction);
            equal(List.of(count("orders"), count("bills")), List.of(1, 0));
            receiver.commitTransaction(transaction);
            equal(List.of(count("orders"), count("bills")), List.of(0, 3));
            try {
                receiver.commitTransaction(transaction);
            } catch (RuntimeException expected) {
                check(expected.getMessage().contains("not declared"), expected.getMessage());
                return;
            }
            throw new AssertionError("a transaction was committed twice");
        }
    }

    void sendTypes() {
        Map<String, Object> types = new LinkedHashMap<>();
        types.put("string", "\u00e4rger");
        types.put("true", true);
        types.put("char", 'c');
        types.put("byte", (byte) -128);
        types.put("short", (short) -32768);
        types.put("int", -5);
        types.put("long", 1L << 40);
        types.put("float", 1.5f);
        types.put("double", 1e300);
        types.put("uuid", new UUID(0, 7));
        types.put("date", new Date(1_767_323_045_678L));
        types.put("date-time", OffsetDateTime.parse("2026-01-02T03:04:05.678Z"));
        types.put("duration", Duration.ofMinutes(61));
        types.put("uri", URI.create("http://example.org/"));
        types.put("null", null);
        try (ServiceBusSenderClient sender = sender("typed")) {
            ServiceBusMessage plain = new ServiceBusMessage("plain").setSessionId("s").setSubject("subject")
                    .setTimeToLive(Duration.ofHours(1)).setCorrelationId("c").setMessageId("plain");
            List<ServiceBusMessage> messages = List.of(
                    plain,
                    new ServiceBusMessage(AmqpMessageBody.fromValue(List.of(1, "x"))).setMessageId("value"),
                    new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1, "x"))).setMessageId("sequence"));
            for (ServiceBusMessage message : messages) {
                message.getApplicationProperties().putAll(types);
                sender.sendMessage(message);
            }
        }
    }

    void readDeadLetter(String body, String reason) {
        try (ServiceBusReceiverClient receiver =
                builder().receiver().queueName("orders").subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete()
                        .buildClient()) {
            ServiceBusReceivedMessage message = take(receiver, 1).get(0);
            equal(List.of(message.getBody().toString(), message.getDeadLetterReason()), List.of(body, reason));
            receiver.complete(message);
        }
    }

    void put(String... texts) {
        try (ServiceBusSenderClient sender = sender("orders")) {
            sender.sendMessages(Arrays.stream(texts).map(ServiceBusMessage::new).collect(Collectors.toList()));
        }
    }

    int count(String queue) {
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            return (int) receiver.peekMessages(10).stream().count();
        }
    }

    /** Receives exactly so many messages, in as many calls as that takes. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        while (found.size() < count) {
            int before = found.size();
            receiver.receiveMessages(count - before, WAIT).forEach(found::add);
            check(found.size() > before, before + " of " + count + " messages arrived within " + WAIT);
        }
        return found;
    }

    static List<String> bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(message -> message.getBody().toString()).collect(Collectors.toList());
    }

    static void equal(Object found, Object expected) {
        check(found.equals(expected), found + " is not " + expected);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] arguments) {
        Scenario scenario = new Scenario(arguments[arguments.length - 1]);
        String[] names = {
            "send", "receive", "settle", "defer", "peek", "schedule", "sessions", "dead_letter", "transactions"
        };
        Part[] parts = {
            scenario::send, scenario::receive, scenario::settle, scenario::defer, scenario::peek, scenario::schedule,
            scenario::sessions, scenario::deadLetter, scenario::transactions
        };
        if (arguments[0].equals("types")) {
            names = new String[] {"types"};
            parts = new Part[] {scenario::sendTypes};
        }
        List<String> results = new ArrayList<>();
        for (int place = 0; place < parts.length; place++) {
            try {
                parts[place].run();
                results.add('"' + names[place] + "\": null");
            } catch (Throwable error) {
                String text = error.toString().replaceAll("[^ -~]|[\"\\\\]", " ");
                text = text.substring(0, Math.min(300, text.length()));
                results.add('"' + names[place] + "\": \"" + text + '"');
                break; // later parts would find the messages of this one
            }
        }
        System.out.println("{" + String.join(", ", results) + "}");
        System.exit(0);
    }
}
