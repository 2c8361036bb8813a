package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name            string
		cur, wish, next State
	}{
		{"first start", Unknown, Mirroring, LogTruncation},
		{"stop before it began", Unknown, Stopped, LogTruncation},
		{"failback", Stopped, Mirroring, LogTruncation},
		{"takeover repeats the effect", Mirroring, Mirroring, Mirroring},
		{"takeover in mid promotion", Stopping, Stopped, Stopping},
		{"a promotion is finished though mirroring is wished again", Stopping, Mirroring, Stopping},
		{"resume needs no comparison", Paused, Mirroring, Mirroring},
		{"resume while pausing", Pausing, Mirroring, Pausing},
		{"failed keeps its schedule", Failed, Mirroring, Failed},
		{"failover with the source dead", Failed, Stopped, Stopping},
		{"pause wins over failure", Failed, Paused, Pausing},
		{"pause of a stopped one changes nothing", Stopped, Paused, Stopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Plan(tt.cur, tt.wish); got != tt.next {
				t.Errorf("Plan(%v, %v) = %v, want %v", tt.cur, tt.wish, got, tt.next)
			}
		})
	}
}

// Whatever is found and whatever is wished, the plan is a legal transition.
func TestPlanIsLegal(t *testing.T) {
	for _, cur := range States() {
		for _, wish := range []State{Mirroring, Paused, Stopped} {
			if next := Plan(cur, wish); !CanEnter(cur, next) {
				t.Errorf("Plan(%v, %v) = %v: illegal transition", cur, wish, next)
			}
		}
	}
}

// After FAILED one can return to what went before, which retry and recover promise.
func TestFailedReturns(t *testing.T) {
	for _, before := range States() {
		if before == Unknown || before == Stopped || !CanEnter(before, Failed) {
			continue
		}
		if !CanEnter(Failed, before) {
			t.Errorf("FAILED cannot return to %v", before)
		}
	}
}

// The table is SPEC §7 to the letter.
func TestTransitionTable(t *testing.T) {
	spec := map[State]string{
		LogTruncation: "UNKNOWN STOPPED FAILED",
		EpochFencing:  "MIRRORING FAILED",
		Mirroring:     "LOG_TRUNCATION EPOCH_FENCING PAUSED FAILED",
		Pausing:       "LOG_TRUNCATION EPOCH_FENCING MIRRORING FAILED",
		Paused:        "PAUSING FAILED",
		Stopping:      "LOG_TRUNCATION EPOCH_FENCING MIRRORING PAUSING PAUSED FAILED",
		Stopped:       "STOPPING",
	}
	for _, next := range States() {
		for _, cur := range States() {
			legal := cur == next || strings.Contains(" "+spec[next]+" ", " "+cur.String()+" ") || next == Failed && cur != Stopped
			if CanEnter(cur, next) != legal {
				t.Errorf("CanEnter(%v, %v) = %v, want %v", cur, next, !legal, legal)
			}
		}
	}
}

func TestShardIsStoredFormat(t *testing.T) {
	p := Partition{Mirror: "east", TopicID: TopicID{1, 2, 3}, Index: 4}
	if got, want := p.String(), "east:AQIDAAAAAAAAAAAAAAAAAA:4"; got != want {
		t.Fatalf("key %q, want %q", got, want)
	}
	for text, want := range map[string]int32{"": 0, "a": 97 % 50, "east": 3105789 % 50, "polygenelubricants": 0} {
		if got := shard(text, 50); got != want {
			t.Errorf("shard(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestIdentityIDIsStoredFormat(t *testing.T) {
	id := IdentityID("east", TopicID{1}, 0)
	if id < IdentityProducerIDs {
		t.Fatalf("identity id %d lies below 2^62", id)
	}
	if again := IdentityID("east", TopicID{1}, 0); again != id {
		t.Fatalf("identity id is not stable: %d, %d", id, again)
	}
	for _, other := range []int64{IdentityID("west", TopicID{1}, 0), IdentityID("east", TopicID{2}, 0), IdentityID("east", TopicID{1}, 1)} {
		if other == id {
			t.Fatalf("two identities share the id %d", id)
		}
	}
}

func TestBackoffIsBounded(t *testing.T) {
	b := Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Minute, MaxAttempts: 20}
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(0, 1000).Draw(t, "attempt")
		d := b.Delay(attempt, rapid.Float64Range(0, 0.999).Draw(t, "random"))
		base := min(b.Max, b.Initial<<min(attempt, 20))
		if d < base*8/10-1 || d > base*12/10+1 {
			t.Fatalf("delay %v of attempt %d is not %v ±20 %%", d, attempt, base)
		}
	})
	if b.Exhausted(19) || !b.Exhausted(20) || !(Backoff{}).Exhausted(0) {
		t.Error("attempts are counted wrongly")
	}
}

func TestKindOf(t *testing.T) {
	err := fmt.Errorf("append batch: %w", Errorf(Diverged, "at %d", 90).WithHint("recover"))
	if KindOf(err) != Diverged || KindOf(fmt.Errorf("plain")) != Retriable {
		t.Error("the kind of a wrapped error is lost, or an unclassified one is not retriable")
	}
	if got, want := err.Error(), "append batch: at 90; recover"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	for _, k := range Kinds() {
		if strings.HasPrefix(k.String(), "kind(") {
			t.Errorf("kind %d has no name", k)
		}
	}
}

func TestPatterns(t *testing.T) {
	for item, want := range map[string]struct{ literal, matchesDot, matchesDash bool }{
		"audit.events":   {true, true, false},
		"audit(.)events": {false, true, true},
		"(?i)AUDIT.*":    {false, true, true},
	} {
		p, err := ParsePattern(item)
		if err != nil {
			t.Fatal(err)
		}
		if p.Literal() != want.literal || p.Match("audit.events") != want.matchesDot || p.Match("audit-events") != want.matchesDash {
			t.Errorf("pattern %q: literal %v, matches %v %v", item, p.Literal(), p.Match("audit.events"), p.Match("audit-events"))
		}
	}
	if p, _ := ParsePattern(".*"); !p.Match("a group\nof two lines") {
		t.Error(".* does not match every name")
	}
	if _, errs := ParsePatterns([]string{"orders.(", "a{2,1}", "(?!x)y", "*", "fine"}); len(errs) != 4 {
		t.Errorf("%d bad items reported, want 4: %v", len(errs), errs)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0 partitions", 1: "1 partition", 2: "2 partitions"} {
		if got := Count(n, "partition"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestValidateName(t *testing.T) {
	for _, bad := range []string{"", ".", "..", "a/b", "ä", "x.stopped", "x.paused", "x.removed", strings.Repeat("m", 250)} {
		if ValidateName(bad) == nil {
			t.Errorf("name %q is accepted", bad)
		}
	}
	for _, good := range []string{"east", "a.b_c-D9", strings.Repeat("m", 249)} {
		if err := ValidateName(good); err != nil {
			t.Error(err)
		}
	}
}
