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
	wish     mirror.State
	rearm    int32
	standing standing
}

// glance looks for what has become urgent: an edit, a new wish, the end of a trial, a promotion to be finished.
func (l *loop) glance() {
	m, _ := l.deps.View.Mirror(l.name)
	now := glimpse{version: m.Version, pending: len(m.PendingInclude) + len(m.PendingExclude), topics: map[string]wishSeen{}}
	urgent := now.version != l.seen.version || now.pending != l.seen.pending
	stopping := map[string]bool{}
	l.ripe = false
	for _, t := range l.deps.View.Topics(l.name) {
		seen := wishSeen{t.Wish, t.Rearm, l.standing(t)}
		now.topics[t.Name] = seen
		urgent = urgent || l.seen.topics[t.Name] != seen
		if t.Wish == mirror.Stopped && !t.Promoted {
			stopping[t.Name] = true
			if !l.stopping[t.Name] {
				l.stopSince = time.Now()
			}
			l.ripe = l.ripe || l.finishable(t)
		}
	}
	if urgent {
		l.nextRefresh = time.Time{}
	}
	l.seen, l.stopping = now, stopping
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

// wantsLastWord reports whether the source's committed offsets are to be read once more because topics are being stopped.
func (l *loop) wantsLastWord() bool {
	return len(l.stopping) > 0 && !l.down && l.observedAt.Before(l.stopSince) && time.Since(l.stopSince) < lastWord
}

// finishNow reports whether a promotion is to be finished with what is known.
func (l *loop) finishNow() bool {
	at := l.finishAt()
	return !at.IsZero() && !time.Now().Before(at)
}

// finishAt is when promotions are to be finished: once the look at the source that began after the stop has come back, or
// is not worth waiting for. Zero: none waits.
func (l *loop) finishAt() time.Time {
	if !l.ripe {
		return time.Time{}
	}
	asked := !l.observedAt.Before(l.stopSince)
	if l.down || asked && !l.observing {
		return later(l.nextFinish, l.stopSince)
	}
	return later(l.nextFinish, l.stopSince.Add(lastWord))
}
