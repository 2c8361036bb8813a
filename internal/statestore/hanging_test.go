package statestore

import (
	"errors"
	"slices"
	"testing"

	"mirrord/internal/kafka"
)

// Only what is open before and after its coordinator says that it has ended is taken for hanging, and only what the
// coordinator provably committed last is committed.
func TestWhatHangs(t *testing.T) {
	open := kafka.Producer{ID: 7, Epoch: 3, TxnStart: 40, LastSequence: 1}
	later := kafka.Producer{ID: 7, Epoch: 3, TxnStart: 44}
	closed := kafka.Producer{ID: 7, Epoch: 3, TxnStart: -1}
	in := func(state string, epoch int16) map[int64]kafka.Transactional {
		return map[int64]kafka.Transactional{7: {ID: "w", ProducerID: 7, ProducerEpoch: epoch, State: state}}
	}
	type ps = []kafka.Producer
	for name, c := range map[string]struct {
		before, after ps
		said          map[int64]kafka.Transactional
		want          []bool // committed, of each that hangs
	}{
		"committed, and its marker forgotten":        {ps{open}, ps{open}, in("CompleteCommit", 4), []bool{true}},
		"committed long ago: others have come since": {ps{open}, ps{open}, in("CompleteCommit", 6), []bool{false}},
		"committed by the old protocol":              {ps{open}, ps{open}, in("CompleteCommit", 3), []bool{false}},
		"aborted":                                    {ps{open}, ps{open}, in("CompleteAbort", 4), []bool{false}},
		"fenced since":                               {ps{open}, ps{open}, in("Empty", 5), []bool{false}},
		"going on":                                   {ps{open}, ps{open}, in("Ongoing", 3), nil},
		"being committed":                            {ps{open}, ps{open}, in("PrepareCommit", 4), nil},
		"nobody knows it":                            {ps{open}, ps{open}, nil, nil},
		"ended meanwhile":                            {ps{open}, ps{closed}, in("CompleteCommit", 4), nil},
		"another has begun meanwhile":                {ps{open}, ps{later}, in("CompleteCommit", 4), nil},
		"begun after the first look":                 {ps{closed}, ps{later}, in("CompleteCommit", 4), nil},
	} {
		var got []bool
		for _, h := range findHanging(c.before, c.said, c.after) {
			got = append(got, h.committed())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A marker is not idempotent: whoever thaws after its lease writes none (protocol R16).
func TestR16_NoHangingTransactionIsEndedWithoutTheLease(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 1)
	b.must(s.WaitLoaded(b.ctx, 0))
	tp := kafka.TP{Topic: StateTopic, LeaderEpoch: -1}
	at := b.cluster.Resume(b.ctx, []kafka.TP{tp})[tp]
	b.must(at.Err)
	lost := kafka.WithLease(b.ctx, func() error { return errors.New("the lease is over") })
	err := s.end(lost, at.Broker, tp, hanging{Producer: kafka.Producer{ID: 7, Epoch: 3, TxnStart: 0}})
	if !errors.Is(err, kafka.ErrNotSent) {
		t.Errorf("%v", err)
	}
	if after := b.cluster.Resume(b.ctx, []kafka.TP{tp})[tp]; after.LogEnd != at.LogEnd {
		t.Errorf("the log ended at %d and ends at %d", at.LogEnd, after.LogEnd)
	}
}
