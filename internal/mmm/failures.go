package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// fail notes a failure of a step; settle tells it.
func (l *loop) fail(s Step, err error) {
	if err != nil {
		l.failures[s] = append(l.failures[s], err)
	}
}

// failAll notes each of the failures that were joined to one.
func (l *loop) failAll(s Step, err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		l.fail(s, err)
		return
	}
	for _, err := range joined.Unwrap() {
		l.fail(s, err)
	}
}

// settle ends a pass of a step: its failures are counted, shown, and told when they are not what was told before.
func (l *loop) settle(ctx context.Context, s Step) {
	errs := l.failures[s]
	delete(l.failures, s)
	subject := "step " + string(s)
	if ctx.Err() != nil {
		return
	}
	if len(errs) == 0 {
		l.speaker.over(subject)
		l.board.update(func(st *Status) { delete(st.Errors, s) })
		return
	}
	l.metrics.errors.WithLabelValues(l.name, string(s)).Add(float64(len(errs)))
	first := errs[0]
	l.board.update(func(st *Status) { st.Errors[s] = StepError{time.Now(), first.Error(), len(errs)} })
	if kafka.Classify(first) == mirror.Fenced {
		return // another instance goes on
	}
	if l.speaker.say(ctx, slog.LevelWarn, subject, "refresh step failed", unnumbered(first.Error()), "step", string(s), mirror.KeyCount, len(errs),
		mirror.KeyErr, first) {
		l.deps.event(l.name, "", "refresh step failed", fmt.Sprintf("%s: %v", s, first))
	}
}

// recordStatus keeps in the state topic what the passes could not do and what they leave alone, so that everybody sees it.
// The record is written when a step fails, fails for another reason, or succeeds again, and when something else is left.
func (l *loop) recordStatus(ctx context.Context) {
	if l.deps.Lease() != nil {
		return
	}
	recorded, found := l.deps.View.RefreshStatus(l.name), l.board.read()
	before, failed := map[string]statestore.RefreshFailure{}, found.Errors
	for _, f := range recorded.Failures {
		before[f.Step] = f
	}
	status := statestore.RefreshStatus{Mirror: l.name, Notes: found.left()}
	if found.RefreshedAt.IsZero() {
		status.Notes = recorded.Notes // by whoever had the mirror before
	}
	news := !slices.Equal(status.Notes, recorded.Notes)
	for _, s := range Steps() {
		e, ok := failed[s]
		was, had := before[string(s)]
		news = news || ok != had || unnumbered(e.Message) != unnumbered(was.Message)
		switch {
		case ok && had && unnumbered(e.Message) == unnumbered(was.Message):
			status.Failures = append(status.Failures, was)
		case ok:
			status.Failures = append(status.Failures, statestore.RefreshFailure{
				Step: string(s), Message: e.Message, Count: int32(e.Count), SinceMillis: e.At.UnixMilli(),
			})
		}
	}
	if !news {
		return
	}
	var r statestore.Record = status
	if len(status.Failures)+len(status.Notes) == 0 {
		r = statestore.Tombstone{Of: status}
	}
	if err := l.put(ctx, r); err != nil {
		l.log.Debug("failures of the refresh not recorded", mirror.KeyErr, err) // the state topic's own failure is told elsewhere
	}
}

// unnumbered is a text without its digits: ports and counts that differ each time are no new message.
func unnumbered(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// put appends records; what cannot be written is a failure of StepState and is tried again by the next cycle.
func (l *loop) put(ctx context.Context, recs ...statestore.Record) error {
	if len(recs) == 0 {
		return nil
	}
	if err := l.deps.Lease(); err != nil {
		return err
	}
	if err := l.deps.Put(ctx, l.name, recs...); err != nil {
		return fmt.Errorf("write the mirror's state: %w", err)
	}
	return nil
}
