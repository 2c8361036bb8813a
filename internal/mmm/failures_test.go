package mmm

import (
	"errors"
	"log/slog"
	"testing"
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
		l.recordFailures(t.Context())
	}
	pass()
	if state.count() != 0 {
		t.Error("a record was written though nothing failed")
	}
	pass(errors.New("refused by broker 1"), errors.New("the other one"))
	if got := state.RefreshFailures("m"); len(got) != 1 || got[0].Step != "acls" || got[0].Message != "refused by broker 1" || got[0].Count != 2 {
		t.Errorf("recorded %+v", got)
	}
	pass(errors.New("refused by broker 2"))
	if n := state.count(); n != 1 {
		t.Errorf("%d records for the same failure", n)
	}
	pass(errors.New("another reason"))
	if got := state.RefreshFailures("m"); len(got) != 1 || got[0].Message != "another reason" {
		t.Errorf("recorded %+v", got)
	}
	pass()
	if got := state.RefreshFailures("m"); len(got) != 0 {
		t.Errorf("still recorded %+v", got)
	}
}
