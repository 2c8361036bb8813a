package coordinator

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// stage is one partition outside of any event loop: its records, and what its owner knows.
type stage struct {
	facts
	out strings.Builder
}

func newStage() *stage {
	p := mirror.Partition{Mirror: "east", TopicID: mirror.TopicID{1}}
	s := &stage{}
	s.state = newState(p, "orders")
	s.topic = statestore.Topic{Mirror: "east", Name: "orders", SourceID: p.TopicID, DestinationID: mirror.TopicID{2}, Partitions: 1, Wish: mirror.Mirroring}
	return s
}

// settle steps until nothing changes any more, and tells each record.
func (s *stage) settle() {
	for range 10 {
		records := s.step()
		if len(records) == 0 {
			return
		}
		for _, r := range records {
			s.apply(r)
		}
	}
	s.out.WriteString("spins\n")
}

func (s *stage) apply(r statestore.Record) {
	switch r := r.(type) {
	case statestore.PartitionState:
		if r.StateEpoch != s.state.StateEpoch {
			s.event = happening{}
		}
		fmt.Fprintf(&s.out, "%s → %s, epoch %d", s.state.State, r.State, r.StateEpoch)
		if r.RetryAttempt != 0 {
			fmt.Fprintf(&s.out, ", attempt %d", r.RetryAttempt)
		}
		if r.ErrorMessage != "" {
			fmt.Fprintf(&s.out, ", %q", r.ErrorMessage)
		}
		s.out.WriteString("\n")
		if s.event.what == settled {
			s.event = happening{}
		}
		s.state = r
	case statestore.LastMirrorEpoch:
		fmt.Fprintf(&s.out, "last mirrored %d at epoch %d\n", r.Position.Offset, r.Position.LeaderEpoch)
		s.position = &r.Position
	case statestore.Tombstone:
		s.out.WriteString("last mirrored position removed\n")
		s.position = nil
	}
}

var effectNames = map[effect]string{noEffect: "none", align: "align", fence: "fence", drain: "drain", promote: "promote", locate: "locate"}

var whats = map[string]what{
	"failed": failed, "drained": drained, "unlocated": unlocated, "aligned": aligned,
	"fenced": fenced, "promoted": promoted, "fencing": fencing, "due": due, "settled": settled,
}

func kindNamed(name string) mirror.Kind {
	for _, k := range mirror.Kinds() {
		if k.String() == name {
			return k
		}
	}
	panic("no kind " + name)
}

func stateNamed(name string) mirror.State {
	for _, s := range mirror.States() {
		if s.String() == name {
			return s
		}
	}
	panic("no state " + name)
}

// run executes one directive of a script.
func (s *stage) run(d *datadriven.TestData) string {
	s.out.Reset()
	arg := func(key, otherwise string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return a.Vals[0]
			}
		}
		return otherwise
	}
	switch d.Cmd {
	case "begin":
	case "wish":
		s.topic.Wish = stateNamed(d.CmdArgs[0].Key)
	case "recover":
		s.topic.Rearm++
		s.finding = statestore.Finding{}
	case "finding":
		s.finding = statestore.Finding{Kind: kindNamed(arg("kind", "retriable")), Message: strings.TrimSpace(d.Input)}
	case "on":
		s.event = happening{what: whats[d.CmdArgs[0].Key]}
		switch s.event.what {
		case failed:
			s.event.err = mirror.Errorf(kindNamed(arg("kind", "retriable")), "%s", strings.TrimSpace(d.Input))
		case drained:
			s.event.position = mirror.Position{LeaderEpoch: 7, Offset: 100}
		}
	default:
		return "unknown directive " + d.Cmd
	}
	s.settle()
	fmt.Fprintf(&s.out, "effect: %s\n", effectNames[s.effect()])
	return s.out.String()
}

// TestScripts plays testdata/shard. Run with -rewrite to take over what happens now, and read the difference.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/shard/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := newStage()
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string { return s.run(d) })
		})
	}
}
