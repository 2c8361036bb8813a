package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// StateRecord is a committed record of __mirror_state as it lies there, with what the product reads in it.
type StateRecord struct {
	Shard      int32
	Offset     int64
	ProducerID int64
	At         time.Time // when it was written, by its writer's clock
	Key, Value []byte
	Record     statestore.Record
}

// StateLog is the state topic of a cluster, shard by shard.
func StateLog(t testing.TB, c *Cluster) (all []StateRecord) {
	t.Helper()
	logs, err := c.Logs(context.Background(), statestore.StateTopic)
	must(t, err)
	for shard := range int32(len(logs)) {
		for r := newReader(c, statestore.StateTopic, shard, logs[shard]); ; {
			rec, err := r.next()
			must(t, err)
			if rec == nil {
				break
			}
			read, err := statestore.DecodeRecord(rec.Key, rec.Value)
			must(t, err)
			all = append(all, StateRecord{shard, rec.Offset, rec.ProducerID, rec.Timestamp, rec.Key, rec.Value, read})
		}
	}
	return all
}

// Transition is a change of a partition's state.
type Transition struct{ From, To mirror.State }

func (x Transition) String() string { return fmt.Sprint(x.From, " → ", x.To) }

// Transitions are all changes of states in a state log.
func Transitions(log []StateRecord) map[Transition]int {
	seen, at := map[Transition]int{}, map[mirror.Partition]statestore.PartitionState{}
	for _, r := range log {
		if s, ok := r.Record.(statestore.PartitionState); ok {
			before, known := at[s.Partition]
			if !known {
				before.State = mirror.Unknown
			}
			if s.StateEpoch != before.StateEpoch {
				seen[Transition{before.State, s.State}]++
			}
			at[s.Partition] = s
		}
	}
	return seen
}

// SoundState demands of the state topic what must be true whatever happened: every transition is one of the table, with
// the next state epoch; after a claim of a shard nobody but its owner has written there; claims count up; no command is
// answered twice.
func SoundState(t testing.TB, c *Cluster) []StateRecord {
	t.Helper()
	log := StateLog(t, c)
	states, answers := map[mirror.Partition]statestore.PartitionState{}, map[[16]byte]int{}
	owner, claim := map[int32]int64{}, map[int32]statestore.ShardClaim{}
	for _, r := range log {
		switch rec := r.Record.(type) {
		case statestore.ShardClaim:
			if !rec.Released {
				if rec.Number <= claim[r.Shard].Number {
					t.Errorf("shard %d, offset %d: claim %d of %s follows claim %d of %s", r.Shard, r.Offset, rec.Number, rec.Owner, claim[r.Shard].Number, claim[r.Shard].Owner)
				}
				owner[r.Shard], claim[r.Shard] = r.ProducerID, rec
			}
		case statestore.PartitionState:
			before, known := states[rec.Partition]
			if !known {
				before.State = mirror.Unknown
			}
			if rec.StateEpoch != before.StateEpoch && (!mirror.CanEnter(before.State, rec.State) || rec.StateEpoch != before.StateEpoch+1) {
				t.Errorf("%s: illegal %s (state epoch %d) → %s (%d)", rec.Partition, before.State, before.StateEpoch, rec.State, rec.StateEpoch)
			}
			states[rec.Partition] = rec
		case statestore.CommandOutcome:
			if answers[rec.ID]++; answers[rec.ID] > 1 {
				t.Errorf("command %x of mirror %s (%s) is answered %d times", rec.ID, rec.Mirror, rec.Verb, answers[rec.ID])
			}
		}
		if by, claimed := owner[r.Shard]; claimed && by != r.ProducerID {
			t.Errorf("shard %d, offset %d: %T written by producer %d after producer %d (%s) had claimed the shard", r.Shard, r.Offset, r.Record, r.ProducerID, by, claim[r.Shard].Owner)
		}
	}
	return log
}
