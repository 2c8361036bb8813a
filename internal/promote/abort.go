package promote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// Partitions are looked at until none has a transaction open: leaders move, brokers lag behind the controller, answers
// are lost. About 8 s in all.
const (
	abortRounds = 20
	abortPause  = 500 * time.Millisecond // at most, between two rounds
)

// split sorts a partition's open transactions into mirrored ones, which are to be aborted, and others.
func split(producers []kafka.Producer) (abort, others []kafka.Producer) {
	for _, pr := range producers {
		switch {
		case pr.TxnStart < 0:
		case mirror.MirroredProducer(pr.ID):
			abort = append(abort, pr)
		default:
			others = append(others, pr)
		}
	}
	return abort, others
}

// ending is a partition whose open transactions are being ended.
type ending struct {
	tp     kafka.TP
	result *Result
	seen   map[int64]bool // mirrored producers with an open transaction, whenever seen
	open   []kafka.Producer
	cause  error // the last thing that went wrong
}

// abort ends the open transactions of mirrored producers. A marker is not idempotent, so it is only written for a
// transaction that was seen open right before; one whose answer was lost and that lands twice costs an invisible offset
// after the last mirrored position, and nothing else.
func (p *Promoter) abort(ctx context.Context, ts []mirror.Target, results []Result) {
	var pending []*ending
	for i, t := range ts {
		if results[i].Err == nil {
			e := &ending{tp: target(t), result: &results[i], seen: map[int64]bool{}}
			e.tp.LeaderEpoch = results[i].LeaderEpoch // the leader may know it before other brokers' metadata tells it
			pending = append(pending, e)
		}
	}
	pause := 10 * time.Millisecond
	for range abortRounds {
		if pending = p.abortOnce(ctx, pending); len(pending) == 0 {
			break
		}
		if err := sleep(ctx, pause); err != nil {
			break // the last causes tell
		}
		pause = min(2*pause, abortPause)
	}
	for _, e := range pending {
		if e.cause == nil {
			e.cause = errors.New("the destination accepts the markers without effect")
		}
		e.fail(mirror.Errorf(mirror.Retriable, "transactions of mirrored producers may be open: %w", e.cause))
	}
	p.tellOpen(ctx, ts, results)
}

func target(t mirror.Target) kafka.TP {
	return kafka.TP{Topic: t.Topic, TopicID: t.DestinationID, Partition: t.Index, LeaderEpoch: -1}
}

// abortOnce looks, writes what is needed, and returns the partitions to be looked at again. Only a leader is believed: a
// follower may not have heard of a transaction.
func (p *Promoter) abortOnce(ctx context.Context, pending []*ending) (again []*ending) {
	tps := make([]kafka.TP, len(pending))
	for i, e := range pending {
		tps[i] = e.tp
	}
	leaders := map[int32][]*ending{}
	points := p.cluster.Resume(ctx, tps)
	for _, e := range pending {
		point := points[e.tp]
		switch {
		case point.Err != nil:
			if e.lookFailed(point.Err) {
				again = append(again, e)
			}
		case e.note(point.Producers):
			leaders[point.Broker] = append(leaders[point.Broker], e)
		}
	}
	for broker, of := range leaders {
		again = append(again, p.writeMarkers(ctx, broker, of)...)
	}
	return again
}

// lookFailed reports whether another look can help.
func (e *ending) lookFailed(err error) bool {
	if kafka.FencedLeaderEpoch(err) {
		e.tp.LeaderEpoch = -1 // risen further, or not known to the leader yet
	}
	e.cause = err
	if mirror.KindOf(err).Retryable() && !kafka.Authorization(err) {
		return true
	}
	e.fail(err)
	return false
}

// note records what is open and reports whether anything of it is to be aborted.
func (e *ending) note(producers []kafka.Producer) bool {
	var others []kafka.Producer
	e.open, others = split(producers)
	e.result.Open = nil
	for _, pr := range others {
		e.result.Open = append(e.result.Open, Transaction{Producer: pr})
	}
	for _, pr := range e.open {
		e.seen[pr.ID] = true
	}
	e.result.Aborted = len(e.seen) - len(e.open)
	return len(e.open) > 0
}

// writeMarkers sends a leader the markers that its partitions need, and returns those to be looked at again.
func (p *Promoter) writeMarkers(ctx context.Context, leader int32, of []*ending) (again []*ending) {
	outcomes, err := p.cluster.WriteMarkers(ctx, leader, markers(of))
	for _, e := range of {
		errs := []error{err}
		for _, pr := range e.open {
			errs = append(errs, outcomes[kafka.MarkerKey{ProducerID: pr.ID, TopicPartition: e.tp.Name()}])
		}
		if e.wrote(errors.Join(errs...)) {
			again = append(again, e)
		}
	}
	return again
}

// wrote reports whether another look is needed. It is, unless the lease or a right is missing.
func (e *ending) wrote(err error) bool {
	e.cause = err
	if leaseLost := errors.Is(err, kafka.ErrNotSent) && mirror.KindOf(err) == mirror.Fenced; leaseLost || kafka.Authorization(err) {
		e.fail(fmt.Errorf("abort transactions: %w", err))
		return false
	}
	return true
}

func (e *ending) fail(err error) { e.result.Err = fmt.Errorf("promote %s: %w", e.tp, err) }

// markers has one entry for every transaction, with all partitions that it is open in. Brokers take a marker whose
// coordinator epoch is not below the last one's.
func markers(endings []*ending) []kafka.Marker {
	type transaction struct {
		id               int64
		epoch            int16
		coordinatorEpoch int32
	}
	of := map[transaction][]kafka.TP{}
	for _, e := range endings {
		for _, pr := range e.open {
			t := transaction{pr.ID, pr.Epoch, max(pr.CoordinatorEpoch, 0)}
			of[t] = append(of[t], e.tp)
		}
	}
	ms := make([]kafka.Marker, 0, len(of))
	for t, tps := range of {
		ms = append(ms, kafka.Marker{ProducerID: t.id, ProducerEpoch: t.epoch, CoordinatorEpoch: t.coordinatorEpoch, TPs: tps})
	}
	return ms
}
