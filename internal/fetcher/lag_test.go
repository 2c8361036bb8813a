package fetcher

import (
	"testing"
	"time"
)

func TestLagClock(t *testing.T) {
	began := time.UnixMilli(1_800_000_000_000)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	var c lagClock
	c.saw(100, at(0))
	if got := c.oldest(100, at(1)); !got.IsZero() {
		t.Errorf("level: oldest is %v", got)
	}
	c.writing(50, at(-3600).UnixMilli())
	if got := c.oldest(50, at(1)); !got.Equal(at(-3600)) {
		t.Errorf("backlog: oldest is %v, want the record's time", got)
	}
	c.writing(50, at(3600).UnixMilli())
	if got := c.oldest(50, at(1)); !got.Equal(at(0)) {
		t.Errorf("backlog with times to come: oldest is %v, want when it was seen", got)
	}
	c.reached(100)
	c.saw(110, at(10))
	c.saw(120, at(20))
	c.writing(100, at(-3600).UnixMilli()) // not backlog any more
	for end, want := range map[int64]time.Time{100: at(10), 109: at(10), 110: at(20), 119: at(20), 120: {}} {
		if got := c.oldest(end, at(30)); !got.Equal(want) {
			t.Errorf("oldest above %d is %v, want %v", end, got, want)
		}
	}
}

func TestLagClock_IsBoundedAndNeverYounger(t *testing.T) {
	var c lagClock
	began := time.UnixMilli(1_800_000_000_000)
	for i := range 10_000 {
		c.saw(int64(i+1), began.Add(time.Duration(i)*time.Second))
	}
	if len(c.marks) > maxMarks {
		t.Fatalf("%d marks", len(c.marks))
	}
	for end := int64(0); end < 10_000; end += 37 {
		if got := c.oldest(end, began); got.After(began.Add(time.Duration(end) * time.Second)) {
			t.Fatalf("above %d: %v is younger than the truth", end, got)
		}
	}
}
