package control

import (
	"io"
	"strings"
	"testing"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

var ordersID = mirror.TopicID{1}

func orders(wish mirror.State, edit func(*statestore.Topic)) statestore.Topic {
	t := statestore.Topic{Mirror: "east", Name: "orders", SourceID: ordersID, Partitions: 2, Wish: wish, Promoted: wish == mirror.Stopped}
	if edit != nil {
		edit(&t)
	}
	return t
}

func at(index int32, state mirror.State, edit func(*statestore.PartitionState)) statestore.PartitionState {
	s := statestore.PartitionState{
		Partition: mirror.Partition{Mirror: "east", TopicID: ordersID, Index: index}, Topic: "orders",
		State: state, Previous: mirror.NotRecorded,
	}
	if edit != nil {
		edit(&s)
	}
	return s
}

// forGood is a FAILED partition that waits for an operator.
func forGood(previous mirror.State) func(*statestore.PartitionState) {
	return func(s *statestore.PartitionState) {
		s.RetryAttempt, s.Previous, s.ErrorMessage = -1, previous, "differs"
	}
}

func neverCreated(t *statestore.Topic) {
	t.Partitions, t.Finding = 0, statestore.Finding{Kind: mirror.SourceGone, Message: "source topic was deleted"}
}

func TestGoal(t *testing.T) {
	for _, tt := range []struct {
		name     string
		verb     mirror.Verb
		records  []statestore.Record
		missing  string // part of the only line; empty: none
		hopeless string
	}{
		{"all there", mirror.VerbStart, []statestore.Record{orders(mirror.Mirroring, nil), at(0, mirror.Mirroring, nil), at(1, mirror.Mirroring, nil)}, "", ""},
		{"one has no state yet", mirror.VerbStart, []statestore.Record{orders(mirror.Mirroring, nil), at(0, mirror.Mirroring, nil)}, "1 of 2", ""},
		{"topic is not created yet", mirror.VerbStart, []statestore.Record{orders(mirror.Mirroring, func(t *statestore.Topic) {
			t.Partitions, t.Message = 0, "policy forbids it"
		})}, "policy forbids it", ""},
		{"retried", mirror.VerbStart, []statestore.Record{orders(mirror.Mirroring, nil), at(0, mirror.Failed, nil), at(1, mirror.Mirroring, nil)}, "0 is FAILED", ""},
		{"failed for good", mirror.VerbStart, []statestore.Record{
			orders(mirror.Mirroring, nil), at(0, mirror.Failed, forGood(mirror.LogTruncation)),
			at(1, mirror.Mirroring, nil),
		}, "", "orders-0 is FAILED: differs"},
		{"failed before it was recovered", mirror.VerbRecover, []statestore.Record{
			orders(mirror.Mirroring, func(t *statestore.Topic) { t.Rearm = 1 }),
			at(0, mirror.Failed, forGood(mirror.Mirroring)), at(1, mirror.Mirroring, nil),
		}, "1 of 2", ""},
		{"recovered to what is wished", mirror.VerbRecover, []statestore.Record{orders(mirror.Paused, nil), at(0, mirror.Paused, nil), at(1, mirror.Paused, nil)}, "", ""},
		{"stop goes on from FAILED", mirror.VerbStop, []statestore.Record{
			orders(mirror.Stopped, nil), at(0, mirror.Failed, forGood(mirror.Mirroring)),
			at(1, mirror.Stopped, nil),
		}, "1 of 2", ""},
		{"the stop itself failed", mirror.VerbStop, []statestore.Record{
			orders(mirror.Stopped, nil), at(0, mirror.Failed, forGood(mirror.Stopping)),
			at(1, mirror.Stopped, nil),
		}, "", "FAILED"},
		{"not finished", mirror.VerbStop, []statestore.Record{
			orders(mirror.Stopped, func(t *statestore.Topic) { t.Promoted = false }),
			at(0, mirror.Stopped, nil), at(1, mirror.Stopped, nil),
		}, "being finished", ""},
		{"stopped before it was created", mirror.VerbStop, []statestore.Record{orders(mirror.Stopped, neverCreated)}, "", ""},
		{"stopped before it was created, not finished", mirror.VerbStop, []statestore.Record{orders(mirror.Stopped, func(t *statestore.Topic) {
			t.Partitions, t.Promoted = 0, false
		})}, "being finished", ""},
		{"paused before it was created", mirror.VerbPause, []statestore.Record{orders(mirror.Paused, neverCreated)}, "", ""},
		{"cannot be created", mirror.VerbStart, []statestore.Record{orders(mirror.Mirroring, neverCreated)}, "", "source topic was deleted"},
		{"wished otherwise meanwhile", mirror.VerbPause, []statestore.Record{orders(mirror.Mirroring, nil)}, "", "another command wishes it MIRRORING"},
		{"left over from a topic that was recreated", mirror.VerbStart, []statestore.Record{
			orders(mirror.Mirroring, nil), at(0, mirror.Mirroring, nil),
			at(1, mirror.Mirroring, nil), at(0, mirror.Failed, func(s *statestore.PartitionState) { s.TopicID, s.RetryAttempt = mirror.TopicID{9}, -1 }),
		}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := statestore.ViewOf(3, tt.records...)
			g := newGoal(v, mirror.Command{Verb: tt.verb, Mirror: "east", Topics: []string{"ord.*"}}, mirror.Outcome{})
			s := g.look(v)
			check := func(what string, lines []string, want string) {
				if want == "" && len(lines) > 0 || want != "" && (len(lines) != 1 || !strings.Contains(lines[0], want)) {
					t.Errorf("%s: %q, want %q", what, lines, want)
				}
			}
			check("missing", s.missing, tt.missing)
			check("hopeless", s.hopeless, tt.hopeless)
		})
	}
}

// A topic of which the destination has nothing is listed, whatever was asked for it since.
func TestTopicsWithoutPartitionsAreListed(t *testing.T) {
	for _, tt := range []struct {
		topic          statestore.Topic
		state, message string
	}{
		{orders(mirror.Mirroring, func(t *statestore.Topic) { t.Partitions = 0 }), "UNKNOWN", "not been created"},
		{orders(mirror.Mirroring, neverCreated), "UNKNOWN", "was deleted"},
		{orders(mirror.Stopped, func(t *statestore.Topic) { t.Partitions, t.Message = 0, "orders_old is in the way" }), "STOPPED", "in the way"},
	} {
		rows := PartitionRows(statestore.ViewOf(3, tt.topic), "east")
		if len(rows) != 1 || rows[0].Partition != -1 || rows[0].State != tt.state || !strings.Contains(rows[0].ErrorMessage, tt.message) {
			t.Errorf("%+v, want %s: %s", rows, tt.state, tt.message)
		}
	}
}

// Where a destination topic is gone, nothing is said about how level it is.
func TestAGoneTopicIsNotLevel(t *testing.T) {
	gone := at(0, mirror.Failed, func(s *statestore.PartitionState) { s.Kind = mirror.DestinationGone })
	shard := mirror.ShardOf(gone.Partition, 3)
	report := statestore.ShardReport{ShardIndex: shard, Positions: []statestore.ReportedPosition{{Partition: gone.Partition, SourceOffset: 10, DestinationOffset: 10}}}
	v := statestore.ViewOf(3, orders(mirror.Mirroring, nil), gone, report)
	row := PartitionRowOf(v, gone)
	if row.SourceOffset != 10 || row.DestinationOffset != -1 || row.Lag != -1 || row.LagSeconds != -1 {
		t.Errorf("%+v", row)
	}
}

// A state topic that nobody has filled says nothing about which mirrors there are.
func TestAnEmptyStateTopicIsNoAnswer(t *testing.T) {
	claim := func(shard int32) statestore.Record { return statestore.ShardClaim{ShardIndex: shard, Number: 1} }
	pause := Request{Command: mirror.Command{Verb: mirror.VerbPause, Mirror: "east"}}
	for _, tt := range []struct {
		name    string
		records []statestore.Record
		says    string
	}{
		{"empty", nil, "2 of 2 shards"},
		{"half", []statestore.Record{claim(0)}, "1 of 2 shards"},
		{"whole", []statestore.Record{claim(0), claim(1)}, "there is no mirror"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := refuseEarly(statestore.ViewOf(2, tt.records...), pause); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

// A dry run refuses what the command would refuse, in its words.
func TestDryRunRefusesLikeTheCommand(t *testing.T) {
	draining := func(t *statestore.Topic) { t.Drain = true }
	for _, tt := range []struct {
		name    string
		topic   statestore.Topic
		drain   bool
		refused string
	}{
		{"drain of a paused topic", orders(mirror.Paused, nil), true, "is paused, so its lag cannot fall"},
		{"stop of a paused topic", orders(mirror.Paused, nil), false, ""},
		{"drain of a draining topic", orders(mirror.Mirroring, draining), true, "is being drained already"},
		{"drain", orders(mirror.Mirroring, nil), true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &Operator{Out: io.Discard, Err: io.Discard}
			cmd := mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"orders"}, Drain: tt.drain}
			err := o.dryRun(t.Context(), statestore.ViewOf(3, tt.topic), Request{Command: cmd})
			if (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v, want %q", err, tt.refused)
			}
		})
	}
}

func TestGoalLeavesOutWhatWasRefusedOrExcluded(t *testing.T) {
	other := func(name string) statestore.Topic {
		return orders(mirror.Mirroring, func(t *statestore.Topic) { t.Name, t.SourceID = name, mirror.TopicID{7} })
	}
	v := statestore.ViewOf(1, orders(mirror.Mirroring, nil), other("orders.old"), other("orders.bad"), other("else"))
	g := newGoal(v, mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"orders.*"}, Exclude: []string{"orders.old"}},
		mirror.Outcome{Topics: []mirror.TopicOutcome{{Topic: "orders.bad", Refused: true, Message: "no"}, {Topic: "orders", Message: "mirrored already"}}})
	if len(g.topics) != 1 || g.topics[0] != "orders" || len(g.message) != 1 || g.message[0] != "orders: mirrored already" {
		t.Errorf("got %+v", g)
	}
}
