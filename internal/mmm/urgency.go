package mmm

import (
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// glimpse is what the loop saw in the view when it last looked, as far as a change of it makes a refresh urgent.
type glimpse struct {
	version int32
	pending int
	topics  map[string]wishSeen
}

type wishSeen struct {
	wish  mirror.State
	rearm int32
}

// glance looks for what has become urgent: an edit, a new wish, a promotion to be finished.
func (l *loop) glance() {
	m, _ := l.deps.View.Mirror(l.name)
	now := glimpse{version: m.Version, pending: len(m.PendingInclude) + len(m.PendingExclude), topics: map[string]wishSeen{}}
	urgent := now.version != l.seen.version || now.pending != l.seen.pending
	waiting := false
	for _, t := range l.deps.View.Topics(l.name) {
		seen := wishSeen{t.Wish, t.Rearm}
		now.topics[t.Name] = seen
		urgent = urgent || l.seen.topics[t.Name] != seen
		waiting = waiting || l.finishable(t)
	}
	if urgent {
		l.nextRefresh = time.Time{}
	}
	l.seen = now
	switch {
	case waiting && l.finishSince.IsZero():
		l.finishSince = time.Now()
	case !waiting:
		l.finishSince = time.Time{}
	}
}

// finishable reports whether all partitions of a topic are STOPPED and what belongs to its promotion is still to be done.
func (l *loop) finishable(t statestore.Topic) bool {
	if t.Wish != mirror.Stopped || t.Promoted {
		return false
	}
	for i := range t.Partitions {
		p, ok := l.deps.View.Partition(mirror.Partition{Mirror: l.name, TopicID: t.SourceID, Index: i})
		if !ok || p.State != mirror.Stopped {
			return false
		}
	}
	return true
}

// wantsLastWord reports whether the source's committed offsets are to be read once more before a promotion is finished.
func (l *loop) wantsLastWord() bool {
	return !l.finishSince.IsZero() && !l.down && l.observedAt.Before(l.finishSince) && time.Since(l.finishSince) < lastWord
}

// finishNow reports whether a promotion is to be finished with what is known.
func (l *loop) finishNow() bool {
	at := l.finishAt()
	return !at.IsZero() && !time.Now().Before(at)
}

// finishAt is when a promotion is to be finished: once its last look at the source has come back, or is not worth waiting
// for. Zero: none waits.
func (l *loop) finishAt() time.Time {
	if l.finishSince.IsZero() {
		return time.Time{}
	}
	asked := !l.observedAt.Before(l.finishSince)
	if l.down || asked && !l.observing {
		return later(l.nextFinish, l.finishSince)
	}
	return later(l.nextFinish, l.finishSince.Add(lastWord))
}
