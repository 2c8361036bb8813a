package e2e

import (
	"strings"
	"testing"
	"time"
)

// A mirror in the opposite direction is refused before it touches anything: the source's writers write on, its settings
// stay, and it is no obstacle to the direction that is at work (SPEC §7, P5).
func TestARefusedCircleTouchesNothing(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	p.S.Topic(t, "t", 2, "retention.ms", "86400000", "compression.type", "zstd")
	p.S.Grant(t, "ALLOW WRITE User:app TOPIC LITERAL t")
	p.S.Send(t, nil, Numbered("t", 0, 0, 100)...)
	there := NewDaemon(t, p.Mirror("t"))
	there.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	s := Pair{p.D, p.S}.Mirror("t")
	s.Mirror = "west"
	back := NewDaemon(t, s)
	back.Start()
	row := awaitRow(t, back, "t", 1, soon, func(r Partition) bool { return r.State == "FAILED" })
	want(t, "attempt", row.RetryAttempt, -1)
	if !strings.Contains(row.ErrorMessage, "mirrord stop --mirror east --topics t") {
		t.Errorf("message: %s", row.ErrorMessage)
	}
	untouched := func() {
		t.Helper()
		must(t, p.S.wantACLs("no DENY WRITE User:* TOPIC LITERAL t"))
		must(t, p.S.wantSettings("t", "retention.ms", "86400000", "compression.type", "zstd", "message.timestamp.type", "", "retention.bytes", ""))
		must(t, p.S.ProduceAs(App, "t"))
	}
	untouched()
	if r := back.run("check", "--config", back.ConfigFile()); !strings.Contains(r.Out, "1 topic will be refused: t; topic t would go in a circle") {
		t.Errorf("check: exit code %d\n%s", r.Code, r.Out)
	}
	back.Do("recover", "--mirror", "west", "--topics", "t", "--no-wait")
	Eventually(t, soon, func() error { return back.wantLog("topic failed", "circle") })
	awaitRow(t, back, "t", 0, soon, func(r Partition) bool { return r.State == "FAILED" })
	untouched()

	there.Do("stop", "--mirror", "east", "--topics", "t", "--drain")
	there.Do("start", "--mirror", "east", "--topics", "t") // west has the topic, and is not at work on it
	p.S.Send(t, nil, Numbered("t", 0, 100, 10)...)
	AwaitLevel(t, p.S, p.D, soon, "t")
	back.Do("stop", "--mirror", "west", "--topics", "t")
	untouched()
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	Identical(t, p.S, p.D, "t")
}
