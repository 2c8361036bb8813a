package coordinator

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// lagPause is the pause between looks at the lag of topics that are being drained.
const lagPause = time.Second

// drains ends the drains of a shard's mirrors that are over: those whose topics are level are stopped, at a deadline the
// wish stays what it is. The command is answered when its last topic is decided.
func (r *runner) drains(s *shard, now time.Time) (records []statestore.Record) {
	for _, m := range r.index.mirrors {
		if mirror.ShardOfMirror(m.mirror.Name, r.view.Shards()) != s.index {
			continue
		}
		byCommand := map[[16]byte][]statestore.Topic{}
		for _, e := range m.topics {
			if e.topic.DrainCommand != ([16]byte{}) {
				byCommand[e.topic.DrainCommand] = append(byCommand[e.topic.DrainCommand], e.topic)
			}
		}
		var behind []string
		for id, topics := range byCommand {
			ended, waiting := r.drained(topics, now)
			records = append(records, ended...)
			behind = append(behind, waiting...)
			r.drainsNow = r.drainsNow || len(waiting) > 0
			if len(waiting) == 0 && len(ended) == 0 {
				records = append(records, r.drainOutcome(s, id, topics, now)...)
			}
		}
		r.lookAtLag(m.mirror.Name, behind, now)
	}
	return records
}

// drained decides about topics that drain, by the last look at their lag.
func (r *runner) drained(topics []statestore.Topic, now time.Time) (records []statestore.Record, waiting []string) {
	for _, t := range topics {
		if !t.Drain {
			continue
		}
		lag, looked := r.lag[[2]string{t.Mirror, t.Name}]
		late := t.DrainDeadlineMillis > 0 && now.UnixMilli() >= t.DrainDeadlineMillis
		switch {
		case looked && lag == 0:
			t.Wish, t.ByCommand, t.Promoted = mirror.Stopped, true, false
		case !late:
			waiting = append(waiting, t.Name)
			continue
		}
		t.Drain = false
		records = append(records, t)
	}
	return records, waiting
}

// drainOutcome answers a stop --drain whose topics are all decided.
func (r *runner) drainOutcome(s *shard, id [16]byte, topics []statestore.Topic, now time.Time) []statestore.Record {
	out := mirror.Outcome{ID: id, Verb: mirror.VerbStop, Mirror: topics[0].Mirror, AtMillis: now.UnixMilli(), Topics: s.missed[id]}
	var records []statestore.Record
	for _, t := range topics {
		at := mirror.TopicOutcome{Topic: t.Name}
		switch lag, looked := r.lag[[2]string{t.Mirror, t.Name}]; {
		case t.Wish == mirror.Stopped:
		case t.DrainDeadlineMillis == 0 || now.UnixMilli() < t.DrainDeadlineMillis:
			at.Refused, at.Message = true, "the wish was changed while the topic was draining"
		case !looked:
			at.Refused, at.Message = true, fmt.Sprintf("not promoted: topic %s was not level in time, its source does not tell its lag", t.Name)
		default:
			at.Refused, at.Message = true, fmt.Sprintf("not promoted: topic %s was not level in time, %s behind", t.Name, mirror.Count(lag, "record"))
		}
		out.Topics = append(out.Topics, at)
		t.DrainCommand, t.DrainDeadlineMillis = [16]byte{}, 0
		records = append(records, t)
		delete(r.lag, [2]string{t.Mirror, t.Name})
	}
	delete(s.missed, id)
	out.Topics = bounded(out.Topics)
	return append(records, statestore.CommandOutcome{Outcome: out})
}

// lookAtLag looks at both clusters for the lag of topics, unless a look is under way. What is not known stays unknown.
func (r *runner) lookAtLag(mirrorName string, topics []string, now time.Time) {
	if len(topics) == 0 || r.lags[mirrorName] || now.Sub(r.lagAt[mirrorName]) < lagPause {
		return
	}
	r.lags[mirrorName] = true
	r.lagAt[mirrorName] = now
	r.started.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, lookupTime)
		defer cancel()
		lags, err := r.deps.Lag(ctx, mirrorName, topics)
		r.box.post(func() {
			delete(r.lags, mirrorName)
			for _, t := range topics {
				key := [2]string{mirrorName, t}
				delete(r.lag, key)
				if lag, ok := lags[t]; ok && err == nil && lag >= 0 {
					r.lag[key] = lag
				}
			}
		})
	})
}
