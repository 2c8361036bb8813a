package mmm

import (
	"context"
	"fmt"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// lostWish is what the operator gets to read about a topic whose wish went with the state topic.
const lostWish = "mirrord was at work on this destination before, and its state topic was lost or emptied: whether this topic was " +
	"mirrored, paused or stopped is not known; resume it to mirror it, or stop it to have it writable"

// remains finds the topics among names that a mirror has left on the destination though the state topic, when this
// instance first read it, held nothing: nobody knows what was wished for them (SPEC §5). They hold data, and either it was
// written by mirrord, as the producer ids tell, or commands had been given here before, one of which may have stopped them.
// A first mirror of topics that hold data of their own, which is a failback, is told apart by that. A partition that cannot
// be asked counts as a remain: waiting for the operator is what cannot harm.
func (o observer) remains(ctx context.Context, dst *kafka.Cluster, names []string, destination catalog) {
	if !o.fresh {
		return
	}
	var tps []kafka.TP
	for _, name := range names {
		if o.view.Seen(name) {
			continue // what mirrord has written there, it wrote since
		}
		for p := range destination[name].partitions {
			tps = append(tps, kafka.TP{Topic: name, Partition: p, LeaderEpoch: -1})
		}
	}
	if len(tps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	producers := dst.Producers(ctx, tps)
	for tp, end := range dst.LogEnds(ctx, tps) {
		holdsData := end.Err != nil || end.Offset > 0
		if d := destination[tp.Topic]; holdsData && (o.commanded || producers[tp].Err != nil || slices.ContainsFunc(producers[tp].Producers, byMirrord)) {
			d.remains = true
			destination[tp.Topic] = d
		}
	}
}

// byMirrord: a producer id that no cluster gives to a client (protocol R1, R14).
func byMirrord(p kafka.Producer) bool { return p.ID >= mirror.MirroredProducerIDs }

// lost makes the record of a topic whose wish went with the state topic: PAUSED until the operator says what it is to be.
func (in topicsInput) lost(name string) topicPlan {
	before := statestore.Topic{Mirror: in.mirror.Name, Name: name, Wish: mirror.Mirroring}
	after := before
	after.Wish, after.Message = mirror.Paused, lostWish
	return topicPlan{before: before, after: after, why: "topic discovered"}
}

// settleLost gives such a topic its ids, so that its partitions come to be PAUSED. Nothing is created or grown for it.
func (in topicsInput) settleLost(p topicPlan) topicPlan {
	s, there := in.source[p.before.Name]
	d, exists := in.destination[p.before.Name]
	if other, taken := in.taken(p.before.Name); taken {
		p.after.Message = fmt.Sprintf("the topic is in mirror %s", other)
		return p
	}
	if there && exists && s.err == nil && d.err == nil && !d.internal {
		p.after.SourceID, p.after.DestinationID, p.after.Partitions = s.id, d.id, min(s.partitions, d.partitions)
		p.after.Slot = min(d.slot, mirror.Slots-1)
	}
	return p
}

// unsettled: the wish of a topic was lost, and its ids are not known yet.
func unsettled(t statestore.Topic) bool {
	return t.Wish == mirror.Paused && !t.ByCommand && t.DestinationID.IsZero()
}

// wishLost: nobody has said yet what a topic is to be, so it is not guarded anew either: it may be in use.
func wishLost(t statestore.Topic) bool { return t.Wish == mirror.Paused && !t.ByCommand }
