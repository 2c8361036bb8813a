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
	c.writing(50, at(-3600).UnixMilli())
	if got := c.oldest(50, 100, at(1)); !got.Equal(at(-3600)) {
		t.Errorf("backlog: oldest is %v, want the record's time", got)
	}
	c.writing(50, at(3600).UnixMilli())
	if got := c.oldest(50, 100, at(1)); !got.Equal(at(0)) {
		t.Errorf("backlog with times to come: oldest is %v, want when it was seen", got)
	}
	c.reached(100)
	c.saw(110, at(10))
	c.saw(120, at(20))
	c.writing(100, at(-3600).UnixMilli()) // not backlog any more
	for end, want := range map[int64]time.Time{100: at(10), 109: at(10), 110: at(20), 119: at(20)} {
		if got := c.oldest(end, 120, at(30)); !got.Equal(want) {
			t.Errorf("oldest above %d is %v, want %v", end, got, want)
		}
	}
}

// Where there is a lag there is an age: also after a restart while the source does not answer, and when the destination has
// lost what it was seen to have.
func TestLagClock_KnowsAnAgeOfEveryLag(t *testing.T) {
	at := func(s int) time.Time { return time.UnixMilli(1_800_000_000_000).Add(time.Duration(s) * time.Second) }
	var c lagClock
	c.saw(100, at(0))
	c.restart()
	if got := c.oldest(50, 100, at(9)); !got.Equal(at(0)) {
		t.Errorf("after a restart: oldest is %v", got)
	}
	c.saw(120, at(5))
	c.saw(130, at(6))
	c.reached(130)
	for _, now := range []int{10, 20} {
		if got := c.oldest(125, 130, at(now)); !got.Equal(at(10)) {
			t.Errorf("log end that went back, after %d s: oldest is %v, want when that was seen", now, got)
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
		if got := c.oldest(end, 10_000, began); got.After(began.Add(time.Duration(end) * time.Second)) {
			t.Fatalf("above %d: %v is younger than the truth", end, got)
		}
	}
}
