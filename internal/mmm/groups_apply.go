package mmm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// How many groups are read again and then committed at a time, and how many records are written at once.
const (
	commitChunk = 100
	recordChunk = 500
)

// applyGroups carries plans out in chunks. Right before a chunk's deeds its groups are read again (protocol R17): one
// that has changed is decided about anew.
func (l *loop) applyGroups(ctx context.Context, cases []groupCase, plans []groupPlan, here map[string]kafka.Group) {
	var busy []int
	for i, p := range plans {
		if !p.idle() {
			busy = append(busy, i)
		}
	}
	for chunk := range slices.Chunk(busy, commitChunk) {
		if ctx.Err() != nil || l.deps.Lease() != nil {
			return
		}
		fresh := make([]groupCase, 0, len(chunk))
		for _, i := range chunk {
			fresh = append(fresh, cases[i])
		}
		l.readDestination(ctx, fresh, here)
		for k, i := range chunk {
			plans[i] = fresh[k].plan()
		}
		l.deeds(ctx, chunk, cases, plans)
	}
	var recs []statestore.Record
	for i, p := range plans {
		if r, ok := l.groupRecord(p, cases[i].rows); ok {
			recs = append(recs, r)
		}
	}
	for chunk := range slices.Chunk(recs, recordChunk) {
		if err := l.put(ctx, chunk...); err != nil {
			l.fail(StepGroups, err)
			break
		}
	}
	l.tellGroups(ctx, plans)
}

// deeds commits and deletes for a chunk of groups.
func (l *loop) deeds(ctx context.Context, chunk []int, cases []groupCase, plans []groupPlan) {
	dst := l.deps.Destination
	commits := map[string]map[kafka.TopicPartition]kafka.CommittedOffset{}
	failed := map[string]map[kafka.TopicPartition]error{}
	for _, i := range chunk {
		p := plans[i]
		share := p.kind == kafka.ShareGroup
		errs := map[kafka.TopicPartition]error{}
		switch {
		case share && len(p.commit) > 0:
			maps.Copy(errs, dst.AlterShareOffsets(ctx, p.name, p.starts()))
		case len(p.commit) > 0:
			commits[p.name] = p.offsets()
		}
		switch {
		case share && len(p.remove) > 0:
			maps.Copy(errs, l.forgetShare(ctx, p))
		case len(p.remove) > 0:
			maps.Copy(errs, dst.DeleteOffsets(ctx, p.name, p.remove))
		}
		failed[p.name] = errs
	}
	for name, errs := range dst.CommitMany(ctx, commits) {
		maps.Copy(failed[name], errs)
	}
	for _, i := range chunk {
		plans[i].failed(failed[plans[i].name], cases[i].rows)
	}
}

func (p groupPlan) starts() map[kafka.TopicPartition]int64 {
	starts := map[kafka.TopicPartition]int64{}
	for tp, at := range p.commit {
		starts[tp] = at.offset
	}
	return starts
}

func (p groupPlan) offsets() map[kafka.TopicPartition]kafka.CommittedOffset {
	offsets := map[kafka.TopicPartition]kafka.CommittedOffset{}
	for tp, at := range p.commit {
		offsets[tp] = kafka.CommittedOffset{Offset: at.offset, LeaderEpoch: -1, Metadata: at.metadata}
	}
	return offsets
}

// forgetShare deletes a share group's state in topics of which none of its partitions is left: the protocol has no
// smaller unit.
func (l *loop) forgetShare(ctx context.Context, p groupPlan) map[kafka.TopicPartition]error {
	kept := map[string]bool{}
	for _, r := range p.rows {
		kept[r.Topic] = true
	}
	var topics []string
	for _, tp := range p.remove {
		if !kept[tp.Topic] && !slices.Contains(topics, tp.Topic) {
			topics = append(topics, tp.Topic)
		}
	}
	errs := map[kafka.TopicPartition]error{}
	if len(topics) == 0 {
		return errs
	}
	failed := l.deps.Destination.DeleteShareOffsets(ctx, p.name, topics...)
	for _, tp := range p.remove {
		if err := failed[tp.Topic]; err != nil {
			errs[tp] = err
		}
	}
	return errs
}

// groupRecord makes the record of a group if it has changed; a group without rows has none.
func (l *loop) groupRecord(p groupPlan, before []statestore.GroupRow) (statestore.Record, bool) {
	r := statestore.GroupStatus{Mirror: l.name, Group: p.name, Type: p.kind, Rows: p.rows}
	switch {
	case len(p.rows) == 0 && len(before) > 0:
		return statestore.Tombstone{Of: r}, true
	case len(p.rows) == 0 || slices.Equal(p.rows, before):
		return nil, false
	}
	return r, true
}

// tellGroups counts and tells the outcome of a pass.
func (l *loop) tellGroups(ctx context.Context, plans []groupPlan) {
	var active []string
	var errs []error
	now, skipped := time.Now(), map[string]bool{}
	for _, p := range plans {
		status, reason := worst(p.rows)
		if status == "" {
			continue
		}
		l.metrics.groups.WithLabelValues(l.name, status).Inc()
		switch {
		case status == StatusFailed:
			errs = append(errs, fmt.Errorf("group %s: %s", p.name, reason))
		case status == StatusSkipped && reason != reasonExcluded && reason != reasonStopping:
			skipped[p.name] = true
			if !l.groupSkipped[p.name] && now.Sub(l.groupSaid[p.name]) >= quiet {
				active, l.groupSaid[p.name] = append(active, p.name), now
			}
		}
	}
	l.groupSkipped = skipped
	maps.DeleteFunc(l.groupSaid, func(_ string, at time.Time) bool { return now.Sub(at) > time.Hour })
	if len(active) > 0 {
		l.log.Info("groups skipped", mirror.KeyCause, reasonActive+" or ahead there", mirror.KeyCount, len(active), mirror.KeyGroup, names(active))
	}
	for _, err := range errs {
		l.fail(StepGroups, err)
	}
}
