package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/statestore"
)

// restoreTime is for how long a state topic is waited for that an instance has yet to fill: a deleted one is created again
// with all that it held (docs/operations.md).
const restoreTime = 10 * time.Second

// settledState reads the state topic until it holds what it should: one that was deleted a moment ago is missing, or empty,
// and says nothing about what is mirrored. It is read as it is if that lasts, for perhaps no instance runs.
func (o *Operator) settledState(ctx context.Context, r *statestore.Reader) error {
	until, told := time.Now().Add(restoreTime), false
	for {
		err := r.Load(ctx)
		deleted := errors.Is(err, statestore.ErrNoState) && o.hadState(ctx)
		if !deleted && (err != nil || unfilled(r.View()) == 0) {
			return err
		}
		if time.Now().After(until) || !sleep(ctx, noStatePause) {
			if deleted {
				return failure(ExitFailed, "the topic %s was deleted, and no instance runs that would create it again", statestore.StateTopic)
			}
			return err
		}
		if !told {
			told = true
			o.tell("the topic %s is new: waiting for an instance to fill it", statestore.StateTopic)
		}
	}
}

// hadState reports whether a destination without a state topic had one: both internal topics are created together.
func (o *Operator) hadState(ctx context.Context) bool {
	m, err := o.Destination.Metadata(ctx, statestore.CommandsTopic)
	return err == nil && !kafka.UnknownTopic(m.Topics[statestore.CommandsTopic].Err)
}

// unfilled counts the shards that no instance has ever claimed, which holds for those that one is restoring, too.
func unfilled(v *statestore.View) (n int32) {
	for shard := range v.Shards() {
		_, claimed := v.Claim(shard)
		if _, bad := v.BadRecord(shard); !claimed && !bad {
			n++
		}
	}
	return n
}

// incomplete says what a view does not show; empty: it is whole.
func incomplete(v *statestore.View) string {
	n := unfilled(v)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d shards of %s are new and not filled yet, so that not all mirrors are known: is an instance running?",
		n, v.Shards(), statestore.StateTopic)
}
