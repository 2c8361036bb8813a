package control

import (
	"fmt"
	"testing"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func TestEventsAreNewestFirstAndBounded(t *testing.T) {
	var e Events
	for i := range keptEvents + 10 {
		e.Add(mirror.Event{Message: fmt.Sprint(i), Mirror: []string{"a", "b"}[i%2]})
	}
	all := e.Newest(keptEvents*2, func(mirror.Event) bool { return true })
	if len(all) != keptEvents || all[0].Message != fmt.Sprint(keptEvents+9) || all[keptEvents-1].Message != "10" {
		t.Errorf("%d events, first %s, last %s", len(all), all[0].Message, all[len(all)-1].Message)
	}
	some := e.Newest(2, func(ev mirror.Event) bool { return ev.Mirror == "a" })
	if len(some) != 2 || some[0].Message != fmt.Sprint(keptEvents+8) || some[1].Message != fmt.Sprint(keptEvents+6) {
		t.Errorf("of one mirror: %+v", some)
	}
	if got := new(Events).Newest(5, func(mirror.Event) bool { return true }); got == nil || len(got) != 0 {
		t.Errorf("none: %#v", got)
	}
}

func TestHistoryKeepsAnHourOfMirrorsThatExist(t *testing.T) {
	var h History
	now := time.Now()
	for i := range keptSamples + 5 {
		h.take(testView(), now.Add(time.Duration(i)*sampleEvery))
	}
	samples := h.Of("east")
	if len(samples) != keptSamples {
		t.Fatalf("%d samples, want %d", len(samples), keptSamples)
	}
	if s := samples[0]; s.Lag != 60 || s.LagSeconds != 1.5 || s.Mirrored != 210 || s.States["STOPPED"] != 1 || !s.At.Equal(now.Add(5*sampleEvery)) {
		t.Errorf("got %+v", s)
	}
	if n, states := h.Totals(); n != 1 || states["STOPPED"] != 1 || states["MIRRORING"] != 1 {
		t.Errorf("totals: %d mirrors, %v", n, states)
	}
	h.take(statestore.ViewOf(4), now)
	if got := h.Of("east"); len(got) != 0 {
		t.Errorf("a deleted mirror keeps %d samples", len(got))
	}
}
