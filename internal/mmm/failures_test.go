package mmm

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// What a refresh could not do is a record for as long as it lasts, written when something changes and not each time.
func TestFailuresAreRecordedUntilTheyAreOver(t *testing.T) {
	state := newMemory()
	l := newLoop("m", DefaultConfig(), Deps{View: state, Put: state.put, Lease: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}, newMetrics(nil))
	pass := func(failures ...error) {
		for _, err := range failures {
			l.fail(StepACLs, err)
		}
		l.settle(t.Context(), StepACLs)
		l.recordStatus(t.Context())
	}
	pass()
	if state.count() != 0 {
		t.Error("a record was written though nothing failed")
	}
	pass(errors.New("refused by broker 1"), errors.New("the other one"))
	if got := state.RefreshStatus("m").Failures; len(got) != 1 || got[0].Step != "acls" || got[0].Message != "refused by broker 1" || got[0].Count != 2 {
		t.Errorf("recorded %+v", got)
	}
	pass(errors.New("refused by broker 2"))
	if n := state.count(); n != 1 {
		t.Errorf("%d records for the same failure", n)
	}
	pass(errors.New("another reason"))
	if got := state.RefreshStatus("m").Failures; len(got) != 1 || got[0].Message != "another reason" {
		t.Errorf("recorded %+v", got)
	}
	pass()
	if got := state.RefreshStatus("m"); got.Mirror != "" {
		t.Errorf("still recorded %+v", got)
	}
}

// What is left alone is recorded too, once somebody has looked; a successor does not forget it before it has.
func TestWhatIsLeftAloneIsRecorded(t *testing.T) {
	state := newMemory()
	deps := Deps{View: state, Put: state.put, Lease: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}
	pass := func(l *loop, change func(*Status)) []string {
		l.board.update(change)
		l.recordStatus(t.Context())
		return state.RefreshStatus("m").Notes
	}
	first, second := newLoop("m", DefaultConfig(), deps, newMetrics(nil)), newLoop("m", DefaultConfig(), deps, newMetrics(nil))
	if got := pass(first, func(s *Status) { s.ACLsLeft = "reason" }); len(got) != 0 {
		t.Errorf("recorded before the refresh has ended: %q", got)
	}
	want := []string{
		"ACLs are not mirrored: reason", "mirror topics are not guarded: no right", "rights to write that wait until their topics are STOPPED: 2",
		"settings left out that the destination does not know: a, b", "x matches no topic",
	}
	if got := pass(first, func(s *Status) {
		s.RefreshedAt, s.HeldACLs, s.Unguarded, s.SettingsLeft = time.Now(), 2, "no right", []string{"a", "b"}
		s.Notes = map[string]string{"x": "matches no topic"}
	}); !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if got := pass(second, func(*Status) {}); !slices.Equal(got, want) {
		t.Errorf("a successor that has not looked yet: %q", got)
	}
	if got := pass(second, func(s *Status) { s.RefreshedAt = time.Now() }); len(got) != 0 || state.RefreshStatus("m").Mirror != "" {
		t.Errorf("still recorded: %q", got)
	}
}
