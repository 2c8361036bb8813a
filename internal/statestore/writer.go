package statestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	transactionTimeout = 10 * time.Second
	commitTimeout      = 8 * time.Second // below transactionTimeout: who gives up must not be overtaken by the broker
	recordsPerCommit   = 5000            // in one transaction
	// generationPatience is how long a refused generation may be the old one of a rebalance that keeps the shard.
	generationPatience = 5 * time.Second
	writerBackoff      = 100 * time.Millisecond
)

// writer joins waiting appends into transactions. One goroutine runs it.
type writer struct {
	*Store
	tx *transactor // nil: none, or the last one was left in doubt
}

func newWriter(s *Store) *writer { return &writer{Store: s} }

func (w *writer) run(ctx context.Context) error {
	defer w.discard()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case first := <-w.appends:
			w.write(ctx, w.collect(first))
		}
	}
}

// collect takes what waits now, up to the limit.
func (w *writer) collect(first *appending) []*appending {
	batch, records := []*appending{first}, len(first.records)
	for records < recordsPerCommit {
		select {
		case a := <-w.appends:
			batch = append(batch, a)
			records += len(a.records)
		default:
			return batch
		}
	}
	return batch
}

// write commits a batch, again and again while that can help, and answers every append in it.
func (w *writer) write(ctx context.Context, batch []*appending) {
	for attempt := 0; ; attempt++ {
		if batch = w.admit(batch); len(batch) == 0 {
			return
		}
		m, changed := w.standing()
		began := time.Now()
		at, err := w.commit(ctx, batch, m)
		w.metrics.observe(time.Since(began), err)
		if err == nil {
			w.answer(batch, at)
			return
		}
		w.discard()
		switch {
		case ctx.Err() != nil:
			refuse(batch, errStoreEnded)
			return
		case isMembership(err):
			if !outdated(err) || !await(ctx, changed, w.patience) {
				refuse(batch, mirror.Errorf(mirror.Fenced, "the group refused member %q of generation %d: %w", m.id, m.generation, err))
				return
			}
		case !retriable(err) && len(batch) > 1: // find the one that cannot be written
			for _, a := range batch {
				w.write(ctx, []*appending{a})
			}
			return
		case !retriable(err):
			refuse(batch, err)
			return
		default:
			w.deps.Log.Debug("state transaction not committed, trying again", mirror.KeyAttempt, attempt, mirror.KeyErr, err)
			pause(ctx, min(writerBackoff<<min(attempt, 4), time.Second))
		}
	}
}

// admit answers the appends that must not be written and returns the others.
func (w *writer) admit(batch []*appending) (good []*appending) {
	m, _ := w.standing()
	for _, a := range batch {
		bad, stopped := w.view.BadRecord(a.shard)
		switch {
		case a.ctx.Err() != nil:
			refuse([]*appending{a}, context.Cause(a.ctx))
		case stopped:
			refuse([]*appending{a}, badShard(a.shard, bad))
		case m.id == "":
			refuse([]*appending{a}, mirror.Errorf(mirror.Fenced, "this instance is not a member of the group"))
		case !w.owns(a):
			refuse([]*appending{a}, mirror.Errorf(mirror.Fenced, "shard %d is not claimed by this instance", a.shard))
		default:
			good = append(good, a)
		}
	}
	return good
}

// commit writes one transaction: the records, with all that a recreated topic has lost in front of them, and the
// standing in the group. It is committed only if the state topic is still the one that the view reads.
func (w *writer) commit(ctx context.Context, batch []*appending, m member) (map[int32]appended, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for _, a := range batch {
		if err := w.view.waitLoaded(ctx, a.shard); err != nil {
			return nil, err
		}
	}
	records, id := w.records(batch)
	if len(records) == 0 {
		return nil, nil
	}
	if w.tx == nil {
		tx, err := openTransactor(w.deps.Cluster, w.TransactionalID(), w.cfg.GroupID)
		if err != nil {
			return nil, err
		}
		w.tx = tx
	}
	ends, err := w.tx.commit(ctx, records, m, id)
	if err != nil {
		return nil, fmt.Errorf("commit state: %w", kafka.ForWantOf(
			"READ and WRITE on topic "+StateTopic+", READ on group "+w.cfg.GroupID+" and WRITE on its transactional ids at the destination", err))
	}
	at := make(map[int32]appended, len(ends))
	for shard, next := range ends {
		at[shard] = appended{topicID: id, next: next}
	}
	return at, nil
}

func (w *writer) records(batch []*appending) (records []*kgo.Record, id mirror.TopicID) {
	restored := map[int32]bool{}
	add := func(shard int32, rs []Record) {
		for _, r := range rs {
			records = append(records, &kgo.Record{Topic: StateTopic, Partition: shard, Key: r.key(), Value: r.value()})
		}
	}
	for _, a := range batch {
		_, id = w.view.position(a.shard)
		if !restored[a.shard] {
			restored[a.shard] = true
			add(a.shard, w.view.lost(a.shard))
		}
		add(a.shard, a.records)
	}
	return records, id
}

func (w *writer) answer(batch []*appending, at map[int32]appended) {
	for _, a := range batch {
		w.committed(a)
		got, ok := at[a.shard]
		if !ok { // nothing to write
			got.next, got.topicID = w.view.position(a.shard)
		}
		a.done <- got
	}
}

func refuse(batch []*appending, err error) {
	for _, a := range batch {
		a.done <- appended{err: err}
	}
}

// discard drops the transactional client. Whatever it left open is ended when the next one begins.
func (w *writer) discard() {
	if w.tx != nil {
		w.tx.close()
		w.tx = nil
	}
}

// await waits for a channel; false: not in time.
func await(ctx context.Context, c <-chan struct{}, limit time.Duration) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(limit):
		return false
	}
}

// isMembership: the group coordinator refused the member or its generation.
func isMembership(err error) bool {
	return outdated(err) || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID)
}

// outdated: the generation may only be the one before a rebalance, in which the shard was kept.
func outdated(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress)
}

// retriable: waiting, or a new transactional client, can help. A producer that was fenced by a successor of one shard
// begins anew for the others.
func retriable(err error) bool {
	switch kafka.Classify(err) {
	case mirror.Refused:
		return false
	default:
		return true
	}
}
