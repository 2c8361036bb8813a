package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// world is the state topic and the instances around it, without a network: what is appended is either taken whole or
// refused, as by the group's fence. It plays random commands, effects, failures, crashes and takeovers. The invariants are
// in check, at the bottom of this file.
type world struct {
	*rapid.T
	log       map[mirror.Partition]statestore.PartitionState
	positions map[mirror.Partition]mirror.Position
	topics    map[string]statestore.Topic
	outcomes  map[[16]byte]int // times that a command was answered
	submitted [][16]byte
	queue     []mirror.Command
	claim     int // of the one shard

	owners []*owner
	serial byte

	transitions []transition
	promotions  []transition // as effects, with the state seen when they began
}

type transition struct {
	partition mirror.Partition
	from, to  mirror.State
	by, claim int
}

// owner is an instance that believes to own the shard. It remembers what no record holds.
type owner struct {
	id, claim int
	events    map[mirror.Partition]happening
	epochs    map[mirror.Partition]int32 // that the events belong to
	flying    map[mirror.Partition]bool  // in the data path
	held      *heldCommand               // decided, not appended yet
}

type heldCommand struct {
	cmd mirror.Command
	d   decision
}

var worldTopics = []string{"a", "b", "c"}

func newWorld(t *rapid.T) *world {
	w := &world{
		T: t, log: map[mirror.Partition]statestore.PartitionState{}, positions: map[mirror.Partition]mirror.Position{},
		topics: map[string]statestore.Topic{}, outcomes: map[[16]byte]int{},
	}
	w.takeover()
	return w
}

func worldPartition(topic string) mirror.Partition {
	return mirror.Partition{Mirror: "m", TopicID: topicID(topic)}
}

// takeover makes a new owner. The old ones do not know.
func (w *world) takeover() {
	w.claim++
	w.owners = append(w.owners, &owner{
		id: len(w.owners), claim: w.claim, events: map[mirror.Partition]happening{},
		epochs: map[mirror.Partition]int32{}, flying: map[mirror.Partition]bool{},
	})
}

// append is the fence: only the newest claim writes.
func (w *world) append(o *owner, records []statestore.Record) bool {
	if o.claim != w.claim {
		return false
	}
	for _, r := range records {
		switch r := r.(type) {
		case statestore.PartitionState:
			from := mirror.Unknown
			if old, ok := w.log[r.Partition]; ok {
				from = old.State
			}
			w.transitions = append(w.transitions, transition{r.Partition, from, r.State, o.id, o.claim})
			w.log[r.Partition] = r
		case statestore.LastMirrorEpoch:
			if at, ok := w.positions[r.Partition]; ok {
				w.Fatalf("last mirrored position of %v written over %v", r, at)
			}
			w.positions[r.Partition] = r.Position
		case statestore.Topic:
			w.topics[r.Name] = r
		case statestore.CommandOutcome:
			w.outcomes[r.ID]++
		case statestore.Tombstone:
			if lme, ok := r.Of.(statestore.LastMirrorEpoch); ok {
				delete(w.positions, lme.Partition)
			}
		}
	}
	return true
}

func (w *world) index() *index {
	m := &mirrorEntry{mirror: statestore.Mirror{Definition: mirror.DefaultDefinition("m"), Version: 1}, topics: map[string]*topicEntry{}}
	for name, t := range w.topics {
		t.SourceID, t.DestinationID, t.Partitions = topicID(name), topicID("dst"+name), 1
		m.topics[name] = &topicEntry{topic: t, finding: t.Finding, in: m, parts: []mirror.Partition{worldPartition(name)}, shards: []int32{0}}
	}
	return &index{mirrors: map[string]*mirrorEntry{"m": m}}
}

func (w *world) state(p mirror.Partition) (statestore.PartitionState, bool) {
	s, ok := w.log[p]
	return s, ok
}

func (w *world) facts(o *owner, topic string) (f facts) {
	p := worldPartition(topic)
	e := w.index().mirrors["m"].topics[topic]
	f = facts{topic: e.topic, finding: e.finding}
	var ok bool
	if f.state, ok = w.log[p]; !ok {
		f.state = newState(p, topic)
	}
	if at, ok := w.positions[p]; ok {
		f.position = &at
	}
	if o.epochs[p] == f.state.StateEpoch {
		f.event = o.events[p]
	}
	return f
}

func (w *world) happens(o *owner, f facts, h happening) {
	o.events[f.state.Partition], o.epochs[f.state.Partition] = h, f.state.StateEpoch
}

// turn lets an owner decide about one topic's partition, or an effect of it end.
func (w *world) turn(o *owner, topic string, succeed bool) {
	f := w.facts(o, topic)
	if records := f.step(); len(records) > 0 {
		w.append(o, records)
		return
	}
	p := f.state.Partition
	o.flying[p] = f.state.State == mirror.Mirroring
	ends := happening{}
	switch f.effect() {
	case align:
		ends.what = aligned
	case fence:
		ends.what = fenced
	case drain:
		ends = happening{what: drained, position: mirror.Position{LeaderEpoch: 1, Offset: int64(w.serial)}}
	case locate:
		ends = happening{what: drained, position: mirror.Position{LeaderEpoch: -1, Offset: 3}}
	case promote:
		w.promotions = append(w.promotions, transition{partition: p, from: f.state.State, by: o.id, claim: o.claim})
		if o.flying[p] {
			w.Fatal("promotes what the data path still mirrors")
		}
		ends.what = promoted
	case noEffect:
		if f.state.State == mirror.Failed {
			ends.what = due
		}
	}
	if !succeed && f.state.State != mirror.Failed {
		kinds := []mirror.Kind{mirror.Retriable, mirror.Unreachable, mirror.Diverged}
		ends = happening{what: failed, err: mirror.Errorf(rapid.SampledFrom(kinds).Draw(w.T, "kind"), "broken")}
	}
	if ends.what != nothing {
		w.happens(o, f, ends)
	}
}

// submit is an operator at work.
func (w *world) submit(verb mirror.Verb, topic string) {
	w.serial++
	cmd := mirror.Command{ID: [16]byte{w.serial, byte(len(w.submitted))}, Verb: verb, Mirror: "m", Topics: []string{topic}}
	w.queue, w.submitted = append(w.queue, cmd), append(w.submitted, cmd.ID)
}

// decide lets an owner decide about the oldest command without an answer, and execute what it decided before.
func (w *world) decide(o *owner) {
	if h := o.held; h != nil {
		o.held = nil
		w.append(o, append(h.d.records, statestore.CommandOutcome{Outcome: h.d.outcome}))
		return
	}
	for _, cmd := range w.queue {
		if w.outcomes[cmd.ID] > 0 {
			continue
		}
		d := &desk{index: w.index(), state: w.state, now: time.Unix(0, 0), declared: func(string) bool { return false }}
		found := lookup{}
		if cmd.Verb == mirror.VerbStart {
			found.topics = cmd.Topics
		}
		o.held = &heldCommand{cmd, d.decide(cmd, found)}
		return
	}
}

// settle lets the newest owner work undisturbed until nothing moves.
func (w *world) settle() {
	w.takeover()
	o := w.owners[len(w.owners)-1]
	for range 100 + len(w.submitted) { // one command a look
		w.decide(o)
		for name := range w.topics {
			w.turn(o, name, true)
		}
	}
}

func TestModel_CommandsCrashesTakeovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		verbs := []mirror.Verb{mirror.VerbStart, mirror.VerbStop, mirror.VerbPause, mirror.VerbResume, mirror.VerbRecover}
		anyOwner := func(t *rapid.T) *owner { // old ones too: nobody told them
			return w.owners[rapid.IntRange(max(0, len(w.owners)-3), len(w.owners)-1).Draw(t, "owner")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"command": func(t *rapid.T) {
				w.submit(rapid.SampledFrom(verbs).Draw(t, "verb"), rapid.SampledFrom(worldTopics).Draw(t, "topic"))
			},
			"decide": func(t *rapid.T) { w.decide(anyOwner(t)) },
			"turn": func(t *rapid.T) {
				if topic := rapid.SampledFrom(worldTopics).Draw(t, "topic"); w.topics[topic].Name != "" {
					w.turn(anyOwner(t), topic, rapid.IntRange(0, 3).Draw(t, "luck") > 0)
				}
			},
			"takeover": func(*rapid.T) { w.takeover() },
			"":         func(*rapid.T) { w.check() },
		})
		w.settle()
		w.check()
		w.checkSettled()
	})
}

// check holds at any time.
func (w *world) check() {
	for _, c := range w.transitions {
		if !mirror.CanEnter(c.from, c.to) {
			w.Fatalf("illegal transition %s → %s", c.from, c.to)
		}
	}
	if !slices.IsSortedFunc(w.transitions, func(a, b transition) int { return a.claim - b.claim }) {
		w.Fatal("a former owner has written")
	}
	for id, n := range w.outcomes {
		if n != 1 {
			w.Fatalf("command %x was answered %d times", id, n)
		}
	}
	for _, p := range w.promotions {
		if p.from != mirror.Stopping {
			w.Fatalf("promoted in %s", p.from)
		}
	}
	for name := range w.topics {
		s, ok := w.log[worldPartition(name)]
		_, recorded := w.positions[worldPartition(name)]
		if ok && s.State == mirror.Stopped && !recorded {
			w.Fatal("STOPPED without a last mirrored position")
		}
		if ok && s.State == mirror.Mirroring && recorded {
			w.Fatal("MIRRORING with the last mirrored position of an earlier stop")
		}
	}
	w.transitions, w.promotions = w.transitions[max(0, len(w.transitions)-1):], nil
}

// checkSettled holds once an owner has had time: no command is lost, and every partition is where it is wished to be or
// waits for the operator.
func (w *world) checkSettled() {
	for _, id := range w.submitted {
		if w.outcomes[id] != 1 {
			w.Fatalf("command %x has %d answers", id, w.outcomes[id])
		}
	}
	for name, t := range w.topics {
		s := w.log[worldPartition(name)]
		if waits := s.State == mirror.Failed && s.RetryAttempt == -1; !waits && s.State != t.Wish {
			w.Fatal(fmt.Sprintf("%s is %s (previous %s), wished %s", name, s.State, s.Previous, t.Wish))
		}
	}
}
