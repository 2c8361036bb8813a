package mmm

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDecideOffset(t *testing.T) {
	at := func(offset int64) *position { return &position{offset: offset} }
	for _, tt := range []struct {
		name string
		c    offsetCase
		want verdict
		to   int64
	}{
		{"first commit", offsetCase{source: at(50), written: -1, end: 100}, commit, 50},
		{"level", offsetCase{source: at(50), destination: at(50), written: 50, end: 100}, level, 50},
		{"level, by somebody else", offsetCase{source: at(50), destination: at(50), written: -1, end: 100}, level, 50},
		{"forward", offsetCase{source: at(60), destination: at(50), written: 50, end: 100}, commit, 60},
		{"forward over what somebody else has", offsetCase{source: at(60), destination: at(55), written: 50, end: 100}, commit, 60},
		{"never beyond the end", offsetCase{source: at(900), written: -1, end: 500}, commit, 500},
		{"follows the end", offsetCase{source: at(900), destination: at(500), written: 500, end: 600}, commit, 600},
		{"never below the start", offsetCase{source: at(10), written: -1, start: 40, end: 100}, commit, 40},
		{"an emptied log", offsetCase{source: at(100), written: -1, start: 100, end: 100}, commit, 100},
		{"reset at the source", offsetCase{source: at(10), destination: at(40), written: 40, end: 100}, commit, 10},
		{"gone on at the destination", offsetCase{source: at(100), destination: at(1000), written: 100, end: 2000}, ahead, 100},
		{"gone on, then reset at the source", offsetCase{source: at(50), destination: at(1000), written: 100, end: 2000}, ahead, 50},
		{"beyond the end", offsetCase{source: at(50), destination: at(1000), written: -1, end: 100}, commit, 50},
		{"deleted at the source", offsetCase{destination: at(50), written: 50, end: 100}, remove, 0},
		{"deleted at the source, gone on here", offsetCase{destination: at(60), written: 50, end: 100}, nothing, 0},
		{"deleted at the source, not ours", offsetCase{destination: at(50), written: -1, end: 100}, nothing, 0},
		{"last commit", offsetCase{source: at(60), destination: at(50), written: 50, end: 100, final: true}, commit, 60},
		{"last commit, reset here meanwhile", offsetCase{source: at(60), destination: at(5), written: 50, end: 100, final: true}, ahead, 60},
		{"last commit, gone on here before it was mirrored again", offsetCase{source: at(60), destination: at(30), written: 20, end: 100, final: true}, commit, 60},
		{"last commit, gone on here meanwhile", offsetCase{source: at(60), destination: at(90), written: 60, end: 100, final: true}, ahead, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.c.decide(); got != tt.want {
				t.Errorf("decided %v, want %v", got, tt.want)
			}
			if tt.c.source != nil {
				if got, _ := tt.c.target(); got.offset != tt.to {
					t.Errorf("target %d, want %d", got.offset, tt.to)
				}
			}
		})
	}
}

func TestMetadataGoesWithItsOffset(t *testing.T) {
	c := offsetCase{source: &position{50, "text"}, destination: &position{50, ""}, written: 50, end: 100}
	if p, clamped := c.target(); clamped || p.metadata != "text" || c.decide() != commit {
		t.Errorf("target %+v, %v", p, c.decide())
	}
	c.end = 40
	if p, clamped := c.target(); !clamped || p.metadata != "" {
		t.Errorf("clamped target %+v", p)
	}
}

// Whatever is found, a committed offset lies in the destination's log, and a place that somebody else has reached is
// never taken back.
func TestDecideOffsetLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Int64Range(0, 20)
		maybe := func(name string) *position {
			if rapid.Bool().Draw(t, name) {
				return &position{offset: offset.Draw(t, name+" offset")}
			}
			return nil
		}
		c := offsetCase{
			source: maybe("source"), destination: maybe("destination"), written: rapid.Int64Range(-1, 20).Draw(t, "written"),
			final: rapid.Bool().Draw(t, "final"),
		}
		c.start = offset.Draw(t, "start")
		c.end = c.start + offset.Draw(t, "length")
		if v := c.decide(); v != commit {
			if v == remove && c.destination.offset != c.written {
				t.Fatalf("removes what mirrord did not write: %+v", c)
			}
			return
		}
		to, _ := c.target()
		if to.offset < c.start || to.offset > c.end {
			t.Fatalf("commits %d outside of the log: %+v", to.offset, c)
		}
		if d := c.destination; d != nil && to.offset < d.offset && d.offset != c.written && d.offset <= c.end {
			t.Fatalf("takes back a foreign offset: %+v", c)
		}
	})
}
