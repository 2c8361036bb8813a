package mmm

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// ids for tests, told apart by a letter.
func id(letter byte) mirror.TopicID { return mirror.TopicID{15: letter} }

func testMirror(include ...string) statestore.Mirror {
	m := statestore.Mirror{Definition: mirror.DefaultDefinition("m")}
	m.TopicsInclude = include
	return m
}

// settled is a topic that is being mirrored, source id s, destination id d.
func settled(partitions int32) statestore.Topic {
	return statestore.Topic{Mirror: "m", Name: "t", SourceID: id('s'), DestinationID: id('d'), Partitions: partitions, Wish: mirror.Mirroring}
}

func with(t statestore.Topic, change func(*statestore.Topic)) statestore.Topic {
	change(&t)
	return t
}

func inState(states ...mirror.State) (all []statestore.PartitionState) {
	for i, s := range states {
		all = append(all, statestore.PartitionState{Partition: mirror.Partition{Mirror: "m", TopicID: id('s'), Index: int32(i)}, Topic: "t", State: s})
	}
	return all
}

func nobody(string) (string, bool) { return "", false }

func TestPlanTopic(t *testing.T) {
	source := func(n int32) topicInfo { return topicInfo{id: id('s'), partitions: n} }
	here := func(n int32) topicInfo { return topicInfo{id: id('d'), partitions: n} }
	started := statestore.Topic{Mirror: "m", Name: "t", Wish: mirror.Mirroring, ByCommand: true}
	for _, tt := range []struct {
		name        string
		record      statestore.Topic
		source      catalog
		destination catalog
		states      []statestore.PartitionState
		exclude     string

		idle    bool
		create  bool
		grow    int32
		finding mirror.Kind
		says    []string // words of the finding or message
		parts   int32
		wish    mirror.State
	}{
		{name: "level", record: settled(3), source: catalog{"t": source(3)}, destination: catalog{"t": here(3)}, idle: true},
		{name: "missing at the destination", record: started, source: catalog{"t": source(6)}, create: true, parts: 6},
		{name: "fewer partitions and no data", record: started, source: catalog{"t": source(6)}, destination: catalog{"t": here(3)}, grow: 6, parts: 6},
		{
			name: "fewer partitions and data: compared first", record: started, source: catalog{"t": source(6)},
			destination: catalog{"t": {id: id('d'), partitions: 3, holdsData: true}}, parts: 3,
		},
		{
			name: "more partitions", record: started, source: catalog{"t": source(6)}, destination: catalog{"t": here(9)},
			finding: mirror.Diverged, says: []string{"9", "6"}, parts: 6,
		},
		{
			name: "more partitions, recovered from", record: settled(6), source: catalog{"t": source(6)}, destination: catalog{"t": here(9)},
			says: []string{"9", "6", "others are not mirrored"}, parts: 6,
		},
		{name: "same partitions", record: started, source: catalog{"t": source(6)}, destination: catalog{"t": here(6)}, parts: 6},
		{
			name: "grown at the source", record: settled(1), source: catalog{"t": source(4)}, destination: catalog{"t": here(1)},
			states: inState(mirror.Mirroring), grow: 4, parts: 4,
		},
		{
			name: "grown on both sides", record: settled(1), source: catalog{"t": source(4)}, destination: catalog{"t": here(4)},
			states: inState(mirror.Mirroring), parts: 4,
		},
		{
			name: "grown at the source, not compared yet", record: settled(1), source: catalog{"t": source(4)}, destination: catalog{"t": here(1)},
			states: inState(mirror.LogTruncation), says: []string{"4 partitions"}, parts: 1,
		},
		{
			name: "grown while a partition fails in passing", record: settled(1), source: catalog{"t": source(4)}, destination: catalog{"t": here(1)},
			states: []statestore.PartitionState{{Partition: mirror.Partition{TopicID: id('s')}, State: mirror.Failed, Previous: mirror.Mirroring}}, grow: 4, parts: 4,
		},
		{name: "source deleted", record: settled(3), destination: catalog{"t": here(3)}, finding: mirror.SourceGone, says: []string{"deleted"}, parts: 3},
		{
			name: "source recreated", record: settled(3), source: catalog{"t": {id: id('n'), partitions: 3}}, destination: catalog{"t": here(3)},
			finding: mirror.SourceGone, says: []string{id('s').String(), id('n').String()}, parts: 3,
		},
		{
			name: "source recreated with fewer partitions, without ids", record: settled(3), source: catalog{"t": source(2)},
			destination: catalog{"t": here(3)}, finding: mirror.SourceGone, says: []string{"2", "3"}, parts: 3,
		},
		{
			name: "source not readable", record: settled(3), source: catalog{"t": {err: mirror.Errorf(mirror.Refused, "no right")}},
			destination: catalog{"t": here(3)}, says: []string{"no right"}, parts: 3,
		},
		{name: "destination deleted", record: settled(3), source: catalog{"t": source(3)}, finding: mirror.DestinationGone, says: []string{"deleted"}, parts: 3},
		{
			name: "destination recreated", record: settled(3), source: catalog{"t": source(3)}, destination: catalog{"t": {id: id('n'), partitions: 3}},
			finding: mirror.DestinationGone, says: []string{id('d').String(), id('n').String()}, parts: 3,
		},
		{
			name: "created again by recover", record: with(settled(3), func(t *statestore.Topic) { t.DestinationID = mirror.TopicID{} }),
			source: catalog{"t": source(3)}, create: true, parts: 3,
		},
		{
			name: "a finding stays", record: with(settled(3), func(t *statestore.Topic) { t.Finding.Message = "x" }), source: catalog{"t": source(3)},
			destination: catalog{"t": here(3)}, idle: true,
		},
		{name: "paused is left alone", record: with(settled(3), func(t *statestore.Topic) { t.Wish = mirror.Paused }), idle: true},
		{
			name: "stopped by command stays stopped", record: with(settled(3), func(t *statestore.Topic) { t.Wish, t.ByCommand = mirror.Stopped, true }),
			source: catalog{"t": source(5)}, destination: catalog{"t": here(3)}, idle: true,
		},
		{
			name: "stopped by an exclude that is gone", record: with(settled(3), func(t *statestore.Topic) { t.Wish, t.Promoted = mirror.Stopped, true }),
			source: catalog{"t": source(3)}, destination: catalog{"t": here(3)}, idle: true,
		},
		{
			name: "newly excluded", record: settled(3), source: catalog{"t": source(3)}, destination: catalog{"t": here(3)}, exclude: "t",
			wish: mirror.Stopped, parts: 3,
		},
		{name: "never existed", record: started, says: []string{"no such topic"}},
		{
			name: "internal", record: with(started, func(t *statestore.Topic) { t.Name = "__consumer_offsets" }),
			source: catalog{"__consumer_offsets": source(1)}, says: []string{"internal"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := testMirror("t")
			m.TopicsExclude = nil
			if tt.exclude != "" {
				m.TopicsExclude = []string{tt.exclude}
			}
			in := topicsInput{
				mirror: m, topics: []statestore.Topic{tt.record}, source: tt.source, destination: tt.destination,
				states: map[string][]statestore.PartitionState{"t": tt.states}, taken: nobody,
			}
			plans, _ := planTopics(in)
			if tt.idle {
				if len(plans) != 0 {
					t.Fatalf("planned %+v, want nothing", plans)
				}
				return
			}
			if len(plans) != 1 {
				t.Fatalf("planned %+v, want one", plans)
			}
			p := plans[0]
			wish := tt.wish
			if wish == 0 {
				wish = mirror.Mirroring
			}
			if p.create != tt.create || p.grow != tt.grow || p.after.Finding.Kind != tt.finding || p.after.Partitions != tt.parts || p.after.Wish != wish {
				t.Errorf("planned %+v", p)
			}
			if (p.after.Finding.Message != "") != (tt.finding != 0) {
				t.Errorf("finding %+v", p.after.Finding)
			}
			for _, word := range tt.says {
				if !strings.Contains(p.after.Finding.Message+p.after.Message, word) {
					t.Errorf("%q does not say %q", p.after.Finding.Message+p.after.Message, word)
				}
			}
		})
	}
}

func TestDiscovery(t *testing.T) {
	m := testMirror("orders.*")
	m.TopicsExclude = []string{"orders-secret"}
	m.PendingInclude, m.PendingExclude = []string{"pay.+"}, []string{"payroll"}
	one := topicInfo{id: id('s'), partitions: 1}
	source := catalog{
		"orders": one, "orders-old": one, "orders-secret": one, "payments": one, "payroll": one, "other": one,
		"orders-taken": one, "orders-internal": {id: id('s'), partitions: 1, internal: true}, "orders-here": one, "__mirror_state": one,
	}
	plans, notes := planTopics(topicsInput{
		mirror: m, source: source, destination: catalog{"orders-here": {id: id('d'), partitions: 1}},
		taken: func(topic string) (string, bool) { return "first", topic == "orders-taken" },
	})
	var created, recorded []string
	for _, p := range plans {
		if p.create {
			created = append(created, p.after.Name)
		} else if p.after.DestinationID.IsZero() && p.after.SourceID.IsZero() {
			recorded = append(recorded, p.after.Name)
		}
		if p.after.Wish != mirror.Mirroring || p.after.ByCommand {
			t.Errorf("discovered %+v", p.after)
		}
	}
	if got := strings.Join(created, " "); got != "orders orders-old payments" {
		t.Errorf("created %q", got)
	}
	if got := strings.Join(recorded, " "); got != "orders-here" { // taken over only once other mirrors' records are seen
		t.Errorf("recorded %q", got)
	}
	if !strings.Contains(notes["orders-taken"], "first") {
		t.Errorf("notes %v", notes)
	}
}

func TestUnmatched(t *testing.T) {
	m := testMirror("Orders", "pay.*", "orders")
	got := selectionOf(m).unmatched(catalog{"orders": {}})
	if strings.Join(got, " ") != "Orders pay.*" {
		t.Errorf("unmatched %v", got)
	}
}

func TestMergeTopicLetsCommandsWin(t *testing.T) {
	before := settled(3)
	after := with(before, func(t *statestore.Topic) { t.Partitions, t.Message = 5, "m" })
	for _, tt := range []struct {
		name string
		now  statestore.Topic
		fits bool
	}{
		{"unchanged", before, true},
		{"stopped meanwhile", with(before, func(t *statestore.Topic) { t.Wish = mirror.Stopped }), false},
		{"re-armed meanwhile", with(before, func(t *statestore.Topic) { t.Rearm++ }), false},
		{"recreated meanwhile", with(before, func(t *statestore.Topic) { t.DestinationID = id('n') }), false},
		{"draining meanwhile", with(before, func(t *statestore.Topic) { t.Drain = true }), true},
	} {
		got, fits := mergeTopic(tt.now, before, after)
		if fits != tt.fits || !fits && got != tt.now || fits && (got.Partitions != 5 || got.Message != "m" || got.Drain != tt.now.Drain) {
			t.Errorf("%s: %+v, %v", tt.name, got, fits)
		}
	}
}

func TestSuspects(t *testing.T) {
	topics := []statestore.Topic{
		settled(1), with(settled(1), func(t *statestore.Topic) { t.Name = "u" }),
		with(settled(1), func(t *statestore.Topic) { t.Name, t.Wish = "p", mirror.Paused }),
	}
	seen := catalog{"t": {id: id('n')}}
	got := suspects(topics, seen, func(t statestore.Topic) mirror.TopicID { return t.SourceID })
	if strings.Join(got, " ") != "t u" {
		t.Errorf("suspects %v", got)
	}
}

// What a mirror left on a destination whose state is gone waits for the operator, with its ids known and unguarded.
func TestPlanTopics_RemainsOfALostStateArePaused(t *testing.T) {
	m := statestore.Mirror{Definition: mirror.DefaultDefinition("m")}
	m.TopicsInclude = []string{"t"}
	in := topicsInput{
		mirror: m, source: catalog{"t": {id: id('s'), partitions: 3}},
		destination: catalog{"t": {id: id('d'), partitions: 2, remains: true}}, taken: nobody,
	}
	plans, _ := planTopics(in)
	if len(plans) != 1 || plans[0].create || plans[0].after.Wish != mirror.Paused || plans[0].after.ByCommand || plans[0].after.Message == "" {
		t.Fatalf("discovered: %+v", plans)
	}
	in.topics = []statestore.Topic{plans[0].after}
	plans, _ = planTopics(in)
	settled := plans[0].after
	if settled.SourceID != id('s') || settled.DestinationID != id('d') || settled.Partitions != 2 || plans[0].grow != 0 || settled.Message == "" || !wishLost(settled) {
		t.Fatalf("settled: %+v", plans)
	}
	in.topics = []statestore.Topic{settled}
	if plans, _ = planTopics(in); len(plans) != 0 {
		t.Fatalf("then nothing is to be done: %+v", plans)
	}
}

// A topic that is started between the look at the destination and the decision was not asked for: that it does not show
// says nothing.
// What a topic that holds data is, where the state topic is new: a failback's, unless mirrord was at work there before.
func TestRemains(t *testing.T) {
	for _, c := range []struct {
		name             string
		fresh, commanded bool
		known            bool // some mirror has had the topic since
		by               int64
		paused           bool
	}{
		{name: "data of its own on a new destination", fresh: true},
		{name: "commands of the past", fresh: true, commanded: true, paused: true},
		{name: "records of the past", fresh: true, by: mirror.MirroredProducerIDs + 7, paused: true},
		{name: "its records are known to be new", fresh: true, by: mirror.MirroredProducerIDs + 7, known: true},
		{name: "the state is there", commanded: true, by: mirror.MirroredProducerIDs + 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			if err := r.fd.CreateTopic("t", 1, nil); err != nil {
				t.Fatal(err)
			}
			r.write(r.fd, "t", 1, 3)
			r.write(r.fd, statestore.CommandsTopic, 1, 1) // the one that has defined the mirror
			r.fd.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
				r.fd.KeepControl()
				return producersOf(req.(*kmsg.DescribeProducersRequest), c.by), nil, true
			})
			if c.known {
				r.state.topics[[2]string{"gone", "t"}] = statestore.Topic{Mirror: "gone", Name: "t"}
			}
			meta, err := r.dst.Metadata(t.Context(), "t", statestore.CommandsTopic)
			if err != nil {
				t.Fatal(err)
			}
			seen := catalogOf(meta)
			observer{view: r.state, name: "m", timeout: 5 * time.Second, fresh: c.fresh, commanded: c.commanded}.remains(t.Context(), r.dst, []string{"t"}, seen)
			if seen["t"].remains != c.paused {
				t.Errorf("left by a mirror: %v, want %v", seen["t"].remains, c.paused)
			}
		})
	}
}

// producersOf answers that one producer, or none, has written.
func producersOf(req *kmsg.DescribeProducersRequest, id int64) *kmsg.DescribeProducersResponse {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, t := range req.Topics {
		topic := kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			partition := kmsg.DescribeProducersResponseTopicPartition{Partition: p}
			if id != 0 {
				partition.ActiveProducers = append(partition.ActiveProducers, kmsg.DescribeProducersResponseTopicPartitionActiveProducer{ProducerID: id})
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func TestPlanTopics_StartedSinceTheLookIsNotDeleted(t *testing.T) {
	started := statestore.Topic{Mirror: "m", Name: "t", SourceID: id('s'), DestinationID: id('d'), Partitions: 3, Wish: mirror.Mirroring}
	in := topicsInput{
		mirror: statestore.Mirror{Definition: mirror.DefaultDefinition("m")}, topics: []statestore.Topic{started},
		source: catalog{"t": {id: id('s'), partitions: 3}}, destination: catalog{}, asked: map[string]bool{"other": true}, taken: nobody,
	}
	if plans, _ := planTopics(in); len(plans) != 0 {
		t.Errorf("not asked for: %+v", plans)
	}
	in.asked["t"] = true
	if plans, _ := planTopics(in); len(plans) != 1 || plans[0].after.Finding.Kind != mirror.DestinationGone {
		t.Errorf("asked for and not there: %+v", plans)
	}
}
