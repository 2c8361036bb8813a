package promote

import (
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// fail is for what must be put right before anything else is done for the targets.
func (a *ascent) fail(of []int, err error) {
	for _, i := range of {
		a.results[i].Err = fmt.Errorf("raise leader epoch of %s: %w", name(a.targets[i]), err)
	}
}

// refuse is for an error of a request. A right or a request that the destination does not grant makes raising impossible,
// which is told once and no error.
func (a *ascent) refuse(of []int, err error) {
	if mirror.KindOf(err) != mirror.Refused {
		a.fail(of, err)
		return
	}
	for _, i := range of {
		a.results[i].NotRaised = err.Error()
	}
	a.tell(err.Error())
}

// halt is for a target that cannot rise now.
func (a *ascent) halt(i int, s step) {
	switch {
	case s.how == never:
		a.results[i].NotRaised = s.why
		a.tell(s.why)
	case a.optional:
		a.results[i].NotRaised = s.why
	default:
		a.fail([]int{i}, mirror.Errorf(mirror.Retriable, "%s", s.why))
	}
}

// giveUp is for a target that did not rise although everything was tried.
func (a *ascent) giveUp(i int) {
	tp := name(a.targets[i])
	why := fmt.Sprintf("it stays at %d, wanted is %d", a.results[i].LeaderEpoch, a.want[i])
	if cause := a.causes[tp]; cause != nil {
		why += ": " + cause.Error()
	}
	a.halt(i, step{how: notNow, why: why})
}

// tell says once that leader epochs cannot be raised on this destination, which does not change by itself.
func (p *Promoter) tell(why string) {
	if p.told.CompareAndSwap(false, true) {
		p.log.Warn("leader epochs cannot be raised on the destination", mirror.KeyCause, why)
	}
}

// report says in a line what became of count partitions.
func (a *ascent) report(count int, took time.Duration) {
	var missed int
	var why string
	for _, r := range a.results {
		if r.NotRaised != "" {
			missed, why = missed+1, r.NotRaised
		}
		if r.NotRaised != "" || r.Err != nil {
			count--
		}
	}
	if count > 0 {
		a.log.Info("leader epochs raised", mirror.KeyCount, count, mirror.KeyDuration, took)
	}
	if missed > 0 && !a.told.Load() {
		a.log.Warn("leader epochs not raised", mirror.KeyCount, missed, mirror.KeyCause, why)
	}
}

func name(t mirror.Target) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: t.Topic, Partition: t.Index}
}
