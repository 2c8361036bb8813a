package coordinator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// office is a desk over two mirrors: "east" with topics in several states, "west" with one.
type office struct {
	*desk
	t      *testing.T
	states map[mirror.Partition]statestore.PartitionState
}

func newOffice(t *testing.T) *office {
	o := &office{t: t, states: map[mirror.Partition]statestore.PartitionState{}}
	o.desk = &desk{
		index: newIndex(), state: func(p mirror.Partition) (statestore.PartitionState, bool) { s, ok := o.states[p]; return s, ok },
		now: time.UnixMilli(1000), declared: func(name string) bool { return name == "declared" },
		define: func(d mirror.Definition, s map[string]string) (mirror.Definition, error) {
			if s["transactions"] == "nonsense" {
				return d, errors.New("transactions: nonsense")
			}
			if v := s["transactions"]; v != "" {
				d.Transactions = v
			}
			return d, nil
		},
		belongings: func(name string) []statestore.Record { return []statestore.Record{o.index.mirrors[name].mirror} },
	}
	o.mirror("east")
	o.topic("east", "running", mirror.Mirroring, mirror.Mirroring)
	o.topic("east", "paused", mirror.Paused, mirror.Paused)
	o.topic("east", "stopped", mirror.Stopped, mirror.Stopped)
	o.topic("east", "broken", mirror.Mirroring, mirror.Failed)
	o.mirror("west")
	o.topic("west", "theirs", mirror.Mirroring, mirror.Mirroring)
	o.mirror("declared")
	return o
}

func (o *office) mirror(name string) {
	m := statestore.Mirror{Definition: mirror.DefaultDefinition(name), TransactionsMode: mirror.Committed, FillersMode: mirror.Markers, Version: 1}
	o.index.mirrors[name] = &mirrorEntry{mirror: m, topics: map[string]*topicEntry{}}
}

func (o *office) topic(mirrorName, name string, wish, state mirror.State) *topicEntry {
	p := mirror.Partition{Mirror: mirrorName, TopicID: topicID(name)}
	s := newState(p, name)
	s.State, s.Previous = state, mirror.Mirroring
	o.states[p] = s
	m := o.index.mirrors[mirrorName]
	e := &topicEntry{in: m, parts: []mirror.Partition{p}, shards: []int32{0}, topic: statestore.Topic{
		Mirror: mirrorName, Name: name,
		SourceID: p.TopicID, DestinationID: topicID("d" + name), Partitions: 1, Wish: wish, Promoted: wish == mirror.Stopped,
	}}
	m.topics[name] = e
	return e
}

func (o *office) do(verb mirror.Verb, mirrorName string, topics ...string) decision {
	return o.decide(mirror.Command{ID: [16]byte{9}, Verb: verb, Mirror: mirrorName, Topics: topics}, lookup{topics: topics})
}

// wished is the wish that a decision writes for a topic.
func (d decision) topic(name string) (statestore.Topic, bool) {
	for _, r := range d.records {
		if t, ok := r.(statestore.Topic); ok && t.Name == name {
			return t, true
		}
	}
	return statestore.Topic{}, false
}

func TestRulesOfCommands(t *testing.T) {
	for _, c := range []struct {
		verb    mirror.Verb
		topic   string
		refused string       // a word of the reason; empty: not refused
		wish    mirror.State // of the record written; Unknown: none
		rearm   int32
	}{
		{mirror.VerbStart, "new", "", mirror.Mirroring, 0},
		{mirror.VerbStart, "running", "", mirror.Unknown, 0},
		{mirror.VerbStart, "paused", "resume", mirror.Unknown, 0},
		{mirror.VerbStart, "stopped", "", mirror.Mirroring, 0},
		{mirror.VerbStart, "broken", "", mirror.Mirroring, 1},
		{mirror.VerbStart, "theirs", "west", mirror.Unknown, 0},
		{mirror.VerbStop, "running", "", mirror.Stopped, 0},
		{mirror.VerbStop, "paused", "", mirror.Stopped, 0},
		{mirror.VerbStop, "broken", "", mirror.Stopped, 0},
		{mirror.VerbStop, "absent", "absent", mirror.Unknown, 0},
		{mirror.VerbStop, "theirs", "theirs", mirror.Unknown, 0},
		{mirror.VerbPause, "running", "", mirror.Paused, 0},
		{mirror.VerbPause, "paused", "", mirror.Unknown, 0},
		{mirror.VerbPause, "stopped", "STOPPED", mirror.Unknown, 0},
		{mirror.VerbPause, "broken", "", mirror.Paused, 0},
		{mirror.VerbResume, "paused", "", mirror.Mirroring, 0},
		{mirror.VerbResume, "running", "", mirror.Unknown, 0},
		{mirror.VerbResume, "stopped", "STOPPED", mirror.Unknown, 0},
		{mirror.VerbRecover, "broken", "", mirror.Mirroring, 1},
		{mirror.VerbRecover, "running", "FAILED", mirror.Unknown, 0},
		{mirror.VerbRecover, "nothing.*", "nothing.*", mirror.Unknown, 0},
	} {
		t.Run(string(c.verb)+" "+c.topic, func(t *testing.T) {
			d := newOffice(t).do(c.verb, "east", c.topic)
			if len(d.outcome.Topics) != 1 || d.outcome.Refused {
				t.Fatalf("outcome %+v", d.outcome)
			}
			at := d.outcome.Topics[0]
			if at.Refused != (c.refused != "") || !strings.Contains(at.Message, c.refused) {
				t.Errorf("refused %v: %q", at.Refused, at.Message)
			}
			written, ok := d.topic(c.topic)
			if !ok {
				written.Wish = mirror.Unknown
			}
			if written.Wish != c.wish || written.Rearm != c.rearm {
				t.Errorf("wish %s, rearm %d", written.Wish, written.Rearm)
			}
		})
	}
}

func TestOneRefusedTopicDoesNotStopTheOthers(t *testing.T) {
	d := newOffice(t).do(mirror.VerbPause, "east", "running", "absent", "stopped")
	if got := refusedTopics(d.outcome); strings.Join(got, " ") != "absent stopped" {
		t.Errorf("refused %v", got)
	}
	if written, _ := d.topic("running"); written.Wish != mirror.Paused {
		t.Errorf("wish of the other topic: %s", written.Wish)
	}
}

func TestUnknownMirrorIsRefusedByName(t *testing.T) {
	for _, verb := range []mirror.Verb{mirror.VerbAlter, mirror.VerbStart, mirror.VerbStop, mirror.VerbPause, mirror.VerbResume, mirror.VerbRecover, mirror.VerbDelete} {
		d := newOffice(t).do(verb, "nowhere", "t")
		if !d.outcome.Refused || !strings.Contains(d.outcome.Message, "nowhere") || len(d.records) > 0 {
			t.Errorf("%s: %+v", verb, d)
		}
	}
}

func TestCreateAndAlter(t *testing.T) {
	o := newOffice(t)
	settings := func(verb mirror.Verb, name, transactions string) decision {
		return o.decide(mirror.Command{Verb: verb, Mirror: name, Settings: map[string]string{"transactions": transactions}}, lookup{})
	}
	if d := settings(mirror.VerbCreate, "east", "auto"); !d.outcome.Refused {
		t.Error("a name in use is taken again")
	}
	if d := settings(mirror.VerbCreate, "x.stopped", "auto"); !d.outcome.Refused {
		t.Error("an illegal name is taken")
	}
	if d := settings(mirror.VerbCreate, "new", "nonsense"); !d.outcome.Refused {
		t.Error("a bad setting is taken")
	}
	d := settings(mirror.VerbCreate, "new", "exact")
	if m, ok := d.records[0].(statestore.Mirror); !ok || m.Name != "new" || m.Version != 1 || d.outcome.Message != "Created mirror new" {
		t.Errorf("%+v", d)
	}
	if d := settings(mirror.VerbAlter, "declared", "exact"); !d.outcome.Refused || !strings.Contains(d.outcome.Message, "configuration file") || len(d.records) > 0 {
		t.Errorf("the file would win at once: %+v", d)
	}
	d = settings(mirror.VerbAlter, "east", "exact")
	if m := d.records[0].(statestore.Mirror); m.Version != 2 || m.TransactionsMode != "" || m.FillersMode != mirror.Markers {
		t.Errorf("altered: %+v", m)
	}
}

// A failover says of which topics the destination has nothing, and why; so does the record, also after a second stop.
func TestStopTellsWhatWasNeverMirrored(t *testing.T) {
	o := newOffice(t)
	e := o.topic("east", "new", mirror.Mirroring, mirror.Mirroring)
	e.parts, e.topic.SourceID, e.topic.DestinationID, e.topic.Partitions = nil, mirror.TopicID{}, mirror.TopicID{}, 0
	e.topic.Message = "topic new_ collides"
	d := o.do(mirror.VerbStop, "east", "new")
	written, _ := d.topic("new")
	if at := d.outcome.Topics[0]; at.Refused || !strings.Contains(at.Message, "topic new_ collides") || written.Message != at.Message {
		t.Errorf("outcome %+v, record %+v", at, written)
	}
	e.topic = written
	if d := o.do(mirror.VerbStop, "east", "new"); len(d.records) != 0 || refusals(d.outcome) != 0 {
		t.Errorf("stopped again: %+v", d)
	}
	if written, _ := o.do(mirror.VerbStart, "east", "new").topic("new"); written.Message != "" {
		t.Errorf("started again, it says %q", written.Message)
	}
}

func TestDeleteNeedsAllStopped(t *testing.T) {
	o := newOffice(t)
	if got := refusedTopics(o.do(mirror.VerbDelete, "east").outcome); strings.Join(got, " ") != "broken paused running" {
		t.Errorf("named %v", got)
	}
	if d := o.do(mirror.VerbDelete, "declared"); !d.outcome.Refused {
		t.Error("a mirror of the configuration file would come back at once")
	}
	for _, name := range []string{"broken", "paused", "running"} {
		o.topic("east", name, mirror.Stopped, mirror.Stopped)
	}
	last := o.index.mirrors["east"].topics["paused"]
	last.topic.Promoted = false // its guard is not lifted, and nobody would do that any more
	if got := refusedTopics(o.do(mirror.VerbDelete, "east").outcome); strings.Join(got, " ") != "paused" {
		t.Errorf("named %v", got)
	}
	last.topic.Promoted = true
	d := o.do(mirror.VerbDelete, "east")
	if refusals(d.outcome) != 0 || len(d.records) != 1 {
		t.Fatalf("%+v", d)
	}
	if _, ok := d.records[0].(statestore.Tombstone); !ok {
		t.Errorf("%T", d.records[0])
	}
}

func TestPatternsWithoutAMatchWaitForTopicsToCome(t *testing.T) {
	o := newOffice(t)
	cmd := mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"lit", "pay.*", "or.*"}, Exclude: []string{"pay-test"}}
	d := o.decide(cmd, lookup{topics: []string{"orders"}, refused: map[string]error{"lit": errors.New("topic lit does not exist at the source")}})
	if got := refusedTopics(d.outcome); strings.Join(got, " ") != "lit" {
		t.Errorf("refused %v", got)
	}
	m := d.records[len(d.records)-1].(statestore.Mirror)
	if strings.Join(m.PendingInclude, " ") != "pay.*" || strings.Join(m.PendingExclude, " ") != "pay-test" {
		t.Errorf("pending %v, excluded %v", m.PendingInclude, m.PendingExclude)
	}
	o.index.mirrors["east"].mirror = m
	d = o.do(mirror.VerbStop, "east", "pay.*")
	if m := d.records[0].(statestore.Mirror); refusals(d.outcome) != 0 || len(m.PendingInclude) != 0 {
		t.Errorf("after the stop: %v %+v", m.PendingInclude, d.outcome)
	}
}

func TestSourceOutOfReachRefusesStart(t *testing.T) {
	o := newOffice(t)
	d := o.decide(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"new"}}, lookup{err: errors.New("no answer")})
	if !d.outcome.Refused || !strings.Contains(d.outcome.Message, "no answer") || len(d.records) > 0 {
		t.Errorf("%+v", d)
	}
}

func TestStopAgainRearmsAFailedPromotion(t *testing.T) {
	o := newOffice(t)
	e := o.topic("east", "stuck", mirror.Stopped, mirror.Failed)
	s := o.states[e.parts[0]]
	s.Previous = mirror.Stopping
	o.states[e.parts[0]] = s
	if written, _ := o.do(mirror.VerbStop, "east", "stuck").topic("stuck"); written.Rearm != 1 {
		t.Errorf("rearm %d", written.Rearm)
	}
}

// A recreated topic has other partitions, of which none has FAILED.
func TestRecoverOfARecreatedTopic(t *testing.T) {
	o := newOffice(t)
	cmd := mirror.Command{Verb: mirror.VerbRecover, Mirror: "east", Topics: []string{"running", "broken"}, Reseed: true}
	d := o.decide(cmd, lookup{paths: map[string]string{"running": ""}, refused: map[string]error{"broken": errors.New("no room")}})
	if got := refusedTopics(d.outcome); strings.Join(got, " ") != "broken" {
		t.Errorf("%+v", d.outcome)
	}
}
