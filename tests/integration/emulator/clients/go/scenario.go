// The scenario of scenario.py for one version of azservicebus.
//
// `go run . CONNECTION_STRING`. It prints a JSON object: for each part null, or the error.
//
// `go run . types CONNECTION_STRING` only sends messages with properties and bodies of every type to "typed".
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	wait  = 20 * time.Second
	large = 200_000 // bytes of a message that takes several frames
)

var (
	ctx    = context.Background()
	client *azservicebus.Client
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Errorf("%v is not %v", found, expected))
	}
}

func text(body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body)}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

func receiver(options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	return must(client.NewReceiverForQueue("orders", options))
}

type receives interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// take receives exactly so many messages, in as many calls as that takes.
func take(from receives, count int) []*azservicebus.ReceivedMessage {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	found := []*azservicebus.ReceivedMessage{}
	for len(found) < count {
		found = append(found, must(from.ReceiveMessages(limited, count-len(found), nil))...)
	}
	return found
}

func put(queue string, messages ...*azservicebus.Message) {
	sender := must(client.NewSender(queue, nil))
	defer sender.Close(ctx)
	for _, message := range messages {
		check(sender.SendMessage(ctx, message, nil))
	}
}

func count() int {
	from := receiver(nil)
	defer from.Close(ctx)
	return len(must(from.PeekMessages(ctx, 10, nil)))
}

func send() {
	one := text("one")
	one.ApplicationProperties = map[string]any{"colour": "red", "n": int32(7)}
	put("orders", one, text("two"), text("three"))
	sender := must(client.NewSender("orders", nil))
	defer sender.Close(ctx)
	batch := must(sender.NewMessageBatch(ctx, nil))
	check(batch.AddMessage(text("four"), nil))
	check(sender.SendMessageBatch(ctx, batch, nil))
	check(sender.SendMessage(ctx, text(strings.Repeat("x", large)), nil))
}

func receive() {
	from := receiver(nil)
	defer from.Close(ctx)
	found := take(from, 5)
	equal(bodies(found), []string{"one", "two", "three", "four", strings.Repeat("x", large)})
	equal(found[0].ApplicationProperties, map[string]any{"colour": "red", "n": int32(7)})
	for _, message := range found {
		check(from.CompleteMessage(ctx, message, nil))
	}
	equal(count(), 0)
}

func settle() {
	put("orders", text("again"))
	from := receiver(nil)
	defer from.Close(ctx)
	message := take(from, 1)[0]
	check(from.RenewMessageLock(ctx, message, nil))
	check(from.AbandonMessage(ctx, message, nil))
	message = take(from, 1)[0]
	equal(message.DeliveryCount, uint32(2)) // this client counts the delivery at hand, too
	check(from.CompleteMessage(ctx, message, nil))
	equal(count(), 0)
}

func deferring() {
	put("orders", text("completed"), text("dead-lettered"), text("abandoned"))
	from := receiver(nil)
	defer from.Close(ctx)
	numbers := []int64{}
	for _, message := range take(from, 3) {
		numbers = append(numbers, *message.SequenceNumber)
		check(from.DeferMessage(ctx, message, nil))
	}
	deferred := must(from.ReceiveDeferredMessages(ctx, numbers, nil))
	equal(bodies(deferred), []string{"completed", "dead-lettered", "abandoned"})
	why := "why"
	check(from.CompleteMessage(ctx, deferred[0], nil))
	check(from.DeadLetterMessage(ctx, deferred[1], &azservicebus.DeadLetterOptions{Reason: &why}))
	check(from.AbandonMessage(ctx, deferred[2], nil))
	check(from.CompleteMessage(ctx, must(from.ReceiveDeferredMessages(ctx, numbers[2:], nil))[0], nil))
	equal(count(), 0)
	readDeadLetter("dead-lettered", "why")
}

func peek() {
	put("orders", text("one"), text("two"))
	from := receiver(nil)
	defer from.Close(ctx)
	peeked := must(from.PeekMessages(ctx, 10, nil))
	equal(bodies(peeked), []string{"one", "two"})
	start := &azservicebus.PeekMessagesOptions{FromSequenceNumber: peeked[1].SequenceNumber}
	equal(bodies(must(from.PeekMessages(ctx, 10, start))), []string{"two"})
	for _, message := range take(from, 2) {
		check(from.CompleteMessage(ctx, message, nil))
	}
}

func schedule() {
	sender := must(client.NewSender("orders", nil))
	defer sender.Close(ctx)
	later := []*azservicebus.Message{text("cancelled"), text("cancelled too")}
	numbers := must(sender.ScheduleMessages(ctx, later, time.Now().Add(time.Hour), nil))
	equal(len(numbers), 2)
	equal(count(), 2)
	check(sender.CancelScheduledMessages(ctx, numbers, nil))
	equal(count(), 0)
	must(sender.ScheduleMessages(ctx, []*azservicebus.Message{text("soon")}, time.Now().Add(time.Second), nil))
	from := receiver(nil)
	defer from.Close(ctx)
	message := take(from, 1)[0]
	equal(string(message.Body), "soon")
	check(from.CompleteMessage(ctx, message, nil))
}

func sessions() {
	name := "a"
	for _, body := range []string{"one", "two"} {
		message := text(body)
		message.SessionID = &name
		put("chats", message)
	}
	session := must(client.AcceptSessionForQueue(ctx, "chats", name, nil))
	defer session.Close(ctx)
	check(session.SetSessionState(ctx, []byte("half"), nil))
	equal(string(must(session.GetSessionState(ctx, nil))), "half")
	check(session.RenewSessionLock(ctx, nil))
	found := take(session, 2)
	check(session.CompleteMessage(ctx, found[0], nil))
	check(session.DeferMessage(ctx, found[1], nil))
	deferred := must(session.ReceiveDeferredMessages(ctx, []int64{*found[1].SequenceNumber}, nil))
	check(session.CompleteMessage(ctx, deferred[0], nil))
}

func deadLetter() {
	put("orders", text("bad"))
	from := receiver(nil)
	defer from.Close(ctx)
	reason, description := "broken", "really"
	why := &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &description}
	check(from.DeadLetterMessage(ctx, take(from, 1)[0], why))
	readDeadLetter("bad", "broken")
}

func readDeadLetter(body, reason string) {
	from := receiver(&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	defer from.Close(ctx)
	message := take(from, 1)[0]
	equal([]string{string(message.Body), *message.DeadLetterReason}, []string{body, reason})
	check(from.CompleteMessage(ctx, message, nil))
}

// run returns the error of a part, or nil.
func run(part func()) (failure any) {
	defer func() {
		if found := recover(); found != nil {
			failure = fmt.Sprint(found)
		}
	}()
	part()
	return nil
}

func sendTypes() {
	types := map[string]any{
		"string": "ärger", "binary": []byte{0xff, 0xfe}, "true": true, "null": nil,
		"byte": int8(-128), "short": int16(-32768), "int": int32(-5), "long": int64(1) << 40,
		"ubyte": uint8(255), "ushort": uint16(65535), "uint": uint32(1) << 31, "ulong": uint64(1) << 63,
		"float": float32(1.5), "double": 1e300,
		"timestamp": time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC),
	}
	sender := must(client.NewSender("typed", nil))
	defer sender.Close(ctx)
	id, session, subject, life := "plain", "s", "subject", time.Hour
	check(sender.SendMessage(ctx, &azservicebus.Message{
		Body: []byte("plain"), MessageID: &id, SessionID: &session, Subject: &subject, TimeToLive: &life,
		ApplicationProperties: types,
	}, nil))
	for name, body := range map[string]azservicebus.AMQPAnnotatedMessageBody{
		"data":     {Data: [][]byte{[]byte("a"), []byte("b")}},
		"value":    {Value: map[string]any{"list": []any{int32(1), "x"}, "yes": true}},
		"sequence": {Sequence: [][]any{{int32(1), "x"}, {2.5}}},
	} {
		check(sender.SendAMQPAnnotatedMessage(ctx, &azservicebus.AMQPAnnotatedMessage{
			Body: body, Properties: &azservicebus.AMQPAnnotatedMessageProperties{MessageID: name},
			ApplicationProperties: types,
		}, nil))
	}
}

func main() {
	client = must(azservicebus.NewClientFromConnectionString(os.Args[len(os.Args)-1], nil))
	if os.Args[1] == "types" {
		fmt.Println(string(must(json.Marshal(map[string]any{"types": run(sendTypes)}))))
		return
	}
	names := []string{"send", "receive", "settle", "defer", "peek", "schedule", "sessions", "dead_letter"}
	parts := []func(){send, receive, settle, deferring, peek, schedule, sessions, deadLetter}
	results := map[string]any{}
	for place, part := range parts {
		results[names[place]] = run(part)
		if results[names[place]] != nil {
			break // later parts would find the messages of this one
		}
	}
	fmt.Println(string(must(json.Marshal(results))))
}
