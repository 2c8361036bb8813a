package mmm

import (
	"testing"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func TestR14_ATopicThatRemembersAnotherSourceGetsASlotAboveIt(t *testing.T) {
	in := func(slot int8, open bool) kafka.Producer {
		id, _ := mirror.ShiftProducer(7, slot)
		p := kafka.Producer{ID: id, TxnStart: -1}
		if open {
			p.TxnStart = 100
		}
		return p
	}
	own, native := kafka.Producer{ID: mirror.IdentityProducerIDs + 5, TxnStart: -1}, kafka.Producer{ID: 7, TxnStart: 3}
	for _, tt := range []struct {
		name      string
		producers []kafka.Producer
		want      int8
	}{
		{"nothing is remembered", nil, 0},
		{"its own producers", []kafka.Producer{native, own}, 0},
		{"one source", []kafka.Producer{native, in(0, false)}, 1},
		{"a source and what was mirrored to it", []kafka.Producer{in(0, false), in(4, false), in(1, false)}, 5},
		{"a transaction that this mirror left open", []kafka.Producer{in(0, false), in(2, true), in(3, false)}, 2},
		{"the last one", []kafka.Producer{in(mirror.Slots-1, false)}, mirror.Slots},
	} {
		if got := slotAbove(tt.producers); got != tt.want {
			t.Errorf("%s: slot %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestR14_TheSlotIsDecidedAsATopicBecomesTheMirrorsAndKept(t *testing.T) {
	source, there := topicInfo{id: mirror.TopicID{1}, partitions: 1}, topicInfo{id: mirror.TopicID{2}, partitions: 1, slot: 3}
	plan := func(m statestore.Mirror, topic statestore.Topic, d topicInfo) statestore.Topic {
		return topicsInput{
			mirror: m, source: catalog{"t": source}, destination: catalog{"t": d},
			taken: func(string) (string, bool) { return "", false },
		}.known(topic, selection{}).after
	}
	exact, fresh := statestore.Mirror{TransactionsMode: mirror.Exact}, statestore.Topic{Mirror: "m", Name: "t", Wish: mirror.Mirroring}
	begun := plan(exact, fresh, there)
	if begun.Slot != 3 || begun.DestinationID != there.id {
		t.Errorf("taken over as %+v, want slot 3", begun)
	}
	there.slot = 9
	if again := plan(exact, begun, there); again.Slot != 3 {
		t.Errorf("slot %d once it is mirrored, want 3", again.Slot)
	}
	there.slot = mirror.Slots
	if none := plan(exact, fresh, there); none.Message != noSlot || !none.DestinationID.IsZero() {
		t.Errorf("without a slot: %+v", none)
	}
	if committed := plan(statestore.Mirror{TransactionsMode: mirror.Committed}, fresh, there); committed.DestinationID != there.id {
		t.Errorf("without a slot, in committed mode: %+v", committed)
	}
}
