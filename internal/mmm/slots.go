package mmm

import (
	"context"
	"fmt"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// noSlot is what the operator gets to read about a topic that remembers too many sources.
const noSlot = "the destination topic remembers the transactions of too many sources to tell another one's apart; wait until the " +
	"brokers have forgotten them (producer.id.expiration.ms), or mirror with transactions: committed"

// slots finds a slot for the producer ids of each topic that is there before it becomes the mirror's (protocol R14): another
// source was mirrored to it, perhaps, which gave out the same ids with other epochs. What counts is what the brokers
// remember, so no record of former mirrors is needed. A topic that cannot be asked waits.
func (o observer) slots(ctx context.Context, dst *kafka.Cluster, destination catalog) {
	var tps []kafka.TP
	for _, t := range o.view.Topics(o.name) {
		if d, ok := destination[t.Name]; ok && d.err == nil && t.DestinationID.IsZero() && t.Wish != mirror.Stopped {
			for p := range d.partitions {
				tps = append(tps, kafka.TP{Topic: t.Name, Partition: p, LeaderEpoch: -1})
			}
		}
	}
	if len(tps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	of := map[string][]kafka.Producer{}
	for tp, r := range dst.Producers(ctx, tps) {
		of[tp.Topic] = append(of[tp.Topic], r.Producers...)
		if d := destination[tp.Topic]; r.Err != nil {
			d.err = fmt.Errorf("list its producers: %w", r.Err)
			destination[tp.Topic] = d
		}
	}
	for topic, producers := range of {
		d := destination[topic]
		d.slot = slotAbove(producers)
		destination[topic] = d
	}
}

// slotAbove is the first slot above all that are in use. A transaction that is open goes on in its own: it was left by this
// mirror, whose state is gone, for the end of a mirror ends all transactions.
func slotAbove(producers []kafka.Producer) (slot int8) {
	open := int8(mirror.Slots)
	for _, p := range producers {
		if !mirror.MirroredProducer(p.ID) {
			continue
		}
		slot = max(slot, mirror.SlotOf(p.ID)+1)
		if p.TxnStart >= 0 {
			open = min(open, mirror.SlotOf(p.ID))
		}
	}
	if open < mirror.Slots {
		return open
	}
	return slot
}
