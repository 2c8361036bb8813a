package mmm

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestSpeaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &logs{}
		s := newSpeaker(slog.New(slog.NewTextHandler(out, nil)))
		say := func(message string) { s.say(t.Context(), slog.LevelWarn, "x", "told", message) }
		check := func(what string, want int) {
			t.Helper()
			if n := out.lines("told"); n != want {
				t.Errorf("%s: %d lines, want %d", what, n, want)
			}
		}
		for range 3 {
			say("one")
		}
		check("the same again and again", 1)
		say("two")
		check("another message", 2)
		s.over("x")
		say("two")
		check("it comes back at once", 2)
		s.over("x")
		time.Sleep(quiet)
		say("two")
		check("it comes back later", 3)
		time.Sleep(time.Hour)
		say("two")
		check("it has never gone", 3)
	})
}
