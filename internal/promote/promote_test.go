package promote

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func wantAll(t *testing.T, results []Result, want func(i int, r Result) bool) {
	t.Helper()
	for i, r := range results {
		if !want(i, r) {
			t.Errorf("target %d: %+v", i, r)
		}
	}
}

func TestPromoteRaisesLeaderEpochsAndLeavesReplicasAlone(t *testing.T) {
	m := start(t, 3, 600, []int32{0}, []int32{1, 2}, []int32{2, 0})
	p, _ := m.promoter(t, nil)
	wantAll(t, p.Promote(testContext(t), m.targets()), func(_ int, r Result) bool {
		return r.Err == nil && r.LeaderEpoch == 1 && r.NotRaised == ""
	})
	original := [][]int32{{0}, {1, 2}, {2, 0}}
	m.check(func(i int, q *placed) {
		if want := original[i%3]; q.epoch != 1 || !slices.Equal(q.replicas, want) || q.leader != want[0] || len(q.adding) > 0 {
			t.Errorf("partition %d: %+v", i, q)
		}
	})
	if n := m.count(kmsg.AlterPartitionAssignments); n > 30 {
		t.Errorf("%d requests for 600 partitions", n)
	}
	if n := m.count(kmsg.WriteTxnMarkers); n != 0 {
		t.Errorf("%d marker requests where nothing was open", n)
	}
}

func TestPromoteWithoutEpochFencing(t *testing.T) {
	m := start(t, 3, 3, []int32{0})
	p, _ := m.promoter(t, nil)
	ts := m.targets()
	ts[0].Mirror = &mirror.Resolved{Definition: mirror.DefaultDefinition("east")}
	ts[0].Mirror.EpochFencing = mirror.Off
	results := p.Promote(testContext(t), ts)
	if results[0].LeaderEpoch != 0 || results[1].LeaderEpoch != 1 || results[0].Err != nil {
		t.Errorf("%+v", results)
	}
}

func TestFenceRaisesAboveTheSource(t *testing.T) {
	m := start(t, 3, 4, []int32{0}, []int32{1, 2})
	m.parts[2].epoch = 30
	p, _ := m.promoter(t, nil)
	ts := m.targets()
	source := map[mirror.Partition]int32{ts[0].Partition: 5, ts[1].Partition: 0, ts[2].Partition: 7}
	results := p.Fence(testContext(t), ts, source)
	for i, want := range []int32{15, 10, 30, 0} {
		if r := results[i]; r.Err != nil || r.LeaderEpoch != want || m.parts[i].epoch != want {
			t.Errorf("partition %d: %+v, epoch %d, want %d", i, r, m.parts[i].epoch, want)
		}
	}
}

func TestPromoteWhereEveryBrokerHostsAReplica(t *testing.T) {
	m := start(t, 3, 30, []int32{0, 1, 2}, []int32{2, 1, 0})
	p, _ := m.promoter(t, nil)
	wantAll(t, p.Promote(testContext(t), m.targets()), func(_ int, r Result) bool { return r.Err == nil && r.LeaderEpoch == 2 })
	m.check(func(i int, q *placed) {
		want := [][]int32{{0, 1, 2}, {2, 1, 0}}[i%2]
		if !slices.Equal(q.replicas, want) || q.leader != want[0] {
			t.Errorf("partition %d: %+v", i, q)
		}
	})
	source := map[mirror.Partition]int32{}
	for _, target := range m.targets() {
		source[target.Partition] = 40
	}
	wantAll(t, p.Fence(testContext(t), m.targets(), source), func(_ int, r Result) bool { return r.Err == nil && r.NotRaised != "" && r.LeaderEpoch == 2 })
}

func TestOneBrokerIsSaidOnceAndNoError(t *testing.T) {
	m := start(t, 1, 50, []int32{0})
	m.parts[7].producers = []kafka.Producer{{ID: mirror.MirroredProducerIDs + 1, TxnStart: 3}}
	p, log := m.promoter(t, nil)
	for range 3 {
		wantAll(t, p.Promote(testContext(t), m.targets()), func(_ int, r Result) bool { return r.Err == nil && r.NotRaised != "" })
	}
	if n := log.lines("cannot be raised"); n != 1 {
		t.Errorf("said %d times", n)
	}
	if m.parts[7].markers != 1 || m.written != 0 {
		t.Errorf("%d markers, %d changes of placement", m.parts[7].markers, m.written)
	}
}

func TestR17_SomebodyElsesReassignmentIsLeftAlone(t *testing.T) {
	m := start(t, 3, 3, []int32{0})
	m.parts[1].reassign([]int32{0, 2}, false)
	p, log := m.promoter(t, nil)
	results := p.Promote(testContext(t), m.targets())
	if r := results[1]; r.Err != nil || r.NotRaised == "" || r.LeaderEpoch != 0 {
		t.Errorf("promotion is held up: %+v", r)
	}
	if log.lines("not raised") != 1 {
		t.Error("nothing was said")
	}
	fenced := p.Fence(testContext(t), m.targets()[1:2], map[mirror.Partition]int32{m.targets()[1].Partition: 4})
	if err := fenced[0].Err; mirror.KindOf(err) != mirror.Retriable || err == nil || !strings.Contains(err.Error(), "in progress") {
		t.Errorf("fencing: %v", err)
	}
	if q := m.parts[1]; !slices.Equal(q.replicas, []int32{0, 2}) || !slices.Equal(q.adding, []int32{2}) || q.epoch != 0 {
		t.Errorf("touched: %+v", q)
	}
	if m.parts[0].epoch != 1 || m.parts[2].epoch != 1 {
		t.Errorf("the others: %d, %d", m.parts[0].epoch, m.parts[2].epoch)
	}
}

func TestUnfinishedAdditionOfACrashedProcessIsUndone(t *testing.T) {
	m := start(t, 3, 2, []int32{0, 1})
	m.parts[0].reassign([]int32{0, 2, 1}, false)
	p, _ := m.promoter(t, nil)
	wantAll(t, p.Promote(testContext(t), m.targets()), func(_ int, r Result) bool { return r.Err == nil && r.LeaderEpoch == 1 })
	m.check(func(i int, q *placed) {
		if !slices.Equal(q.replicas, []int32{0, 1}) || len(q.adding) > 0 || q.epoch != 1 {
			t.Errorf("partition %d: %+v", i, q)
		}
	})
}

func TestAdditionThatIsCompletedAtOnceIsTakenBack(t *testing.T) {
	m := start(t, 3, 2, []int32{0}, []int32{1, 0})
	m.complete = true
	p, _ := m.promoter(t, nil)
	source := map[mirror.Partition]int32{}
	for _, target := range m.targets() {
		source[target.Partition] = 2
	}
	wantAll(t, p.Fence(testContext(t), m.targets(), source), func(_ int, r Result) bool { return r.Err == nil && r.LeaderEpoch >= 12 })
	m.check(func(i int, q *placed) {
		if want := [][]int32{{0}, {1, 0}}[i]; !slices.Equal(q.replicas, want) || !slices.Equal(q.isr, want) || q.leader != want[0] {
			t.Errorf("partition %d: %+v", i, q)
		}
	})
}

func TestOnlyTheControllerTakesRequests(t *testing.T) {
	m := start(t, 3, 4, []int32{0}, []int32{0, 1, 2})
	m.zookeeper = true
	p, _ := m.promoter(t, nil)
	wantAll(t, p.Promote(testContext(t), m.targets()), func(i int, r Result) bool { return r.Err == nil && r.LeaderEpoch == int32(1+i%2) })
	m.check(func(i int, q *placed) {
		if want := [][]int32{{0}, {0, 1, 2}}[i%2]; !slices.Equal(q.replicas, want) || len(q.adding) > 0 {
			t.Errorf("partition %d: %+v", i, q)
		}
	})
}

// Whatever answer is lost, the next call puts things right.
func TestLostAnswersAreLookedAtAgain(t *testing.T) {
	for lost := range 4 {
		m := start(t, 3, 5, []int32{0}, []int32{0, 1, 2})
		n := 0
		m.lose = func(req kmsg.Request) bool {
			switch req.(type) {
			case *kmsg.AlterPartitionAssignmentsRequest, *kmsg.ElectLeadersRequest:
				n++
				return n == lost+1
			}
			return false
		}
		p, _ := m.promoter(t, nil)
		results := p.Promote(testContext(t), m.targets())
		if slices.ContainsFunc(results, func(r Result) bool { return r.Err != nil }) {
			results = p.Promote(testContext(t), m.targets())
		}
		wantAll(t, results, func(_ int, r Result) bool { return r.Err == nil && r.LeaderEpoch >= 1 })
		m.check(func(i int, q *placed) {
			if want := [][]int32{{0}, {0, 1, 2}}[i%2]; !slices.Equal(q.replicas, want) || q.leader != 0 || q.epoch < 1 {
				t.Errorf("answer %d lost: partition %d: %+v", lost, i, q)
			}
		})
	}
}

func TestLostLeaseSendsNothing(t *testing.T) {
	m := start(t, 3, 3, []int32{0})
	m.parts[0].producers = []kafka.Producer{{ID: mirror.MirroredProducerIDs, TxnStart: 3}}
	p, _ := m.promoter(t, func() error { return mirror.Errorf(mirror.Fenced, "lease lost") })
	wantAll(t, p.Promote(testContext(t), m.targets()), func(_ int, r Result) bool { return mirror.KindOf(r.Err) == mirror.Fenced })
	ts := m.targets()
	for i := range ts {
		ts[i].Mirror = &mirror.Resolved{Definition: mirror.Definition{Name: "east", EpochFencing: mirror.Off}}
	}
	results := p.Promote(testContext(t), ts)
	if mirror.KindOf(results[0].Err) != mirror.Fenced || results[1].Err != nil {
		t.Errorf("%+v", results)
	}
	if m.written != 0 || m.parts[0].markers != 0 {
		t.Errorf("%d changes, %d markers", m.written, m.parts[0].markers)
	}
}

func TestMissingRightDoesNotKeepAPartitionFromPromotion(t *testing.T) {
	m := start(t, 3, 3, []int32{0})
	m.refuse[kmsg.AlterPartitionAssignments.Int16()] = kerr.ClusterAuthorizationFailed
	p, log := m.promoter(t, nil)
	wantAll(t, p.Promote(testContext(t), m.targets()), func(_ int, r Result) bool { return r.Err == nil && r.NotRaised != "" })
	if log.lines("cannot be raised") != 1 {
		t.Error("nothing was said")
	}
}

func TestR9_AnotherTopicIsNotPromoted(t *testing.T) {
	m := start(t, 3, 1, []int32{0})
	p, _ := m.promoter(t, nil)
	ts := m.targets()
	ts[0].DestinationID[5]++
	gone := mirror.Target{Partition: mirror.Partition{Mirror: "east", Index: 0}, Topic: "gone", Mirror: ts[0].Mirror}
	results := p.Promote(testContext(t), append(ts, gone))
	if mirror.KindOf(results[0].Err) != mirror.DestinationGone {
		t.Errorf("another id: %v", results[0].Err)
	}
	if !kafka.UnknownTopic(results[1].Err) {
		t.Errorf("no topic: %v", results[1].Err)
	}
	if m.written != 0 {
		t.Errorf("%d changes", m.written)
	}
}

const (
	mirroredID = mirror.MirroredProducerIDs + 5
	identityID = mirror.IdentityProducerIDs + 5
)

func TestR19_OnlyMirroredTransactionsAreAborted(t *testing.T) {
	m := start(t, 3, 3, []int32{0}, []int32{1}, []int32{2})
	m.native = map[int64]string{4: "billing"}
	m.parts[0].producers = []kafka.Producer{
		{ID: mirroredID, Epoch: 3, CoordinatorEpoch: 9, TxnStart: 5},
		{ID: mirroredID + 1, CoordinatorEpoch: -1, TxnStart: 7},
		{ID: mirroredID + 2, TxnStart: -1},
		{ID: 4, TxnStart: 8},
		{ID: 6, TxnStart: -1},
		{ID: identityID, TxnStart: -1},
	}
	m.parts[1].producers = []kafka.Producer{{ID: mirroredID, Epoch: 3, CoordinatorEpoch: 9, TxnStart: 1}}
	p, log := m.promoter(t, nil)
	results := p.Promote(testContext(t), m.targets())
	if r := results[0]; r.Err != nil || r.Aborted != 2 || len(r.Open) != 1 || r.Open[0].TransactionalID != "billing" || r.Open[0].Producer.ID != 4 {
		t.Errorf("%+v", r)
	}
	if n := log.lines("transactional id billing from offset 8"); n != 1 {
		t.Errorf("%d log lines name what stays open", n)
	}
	if r := results[1]; r.Err != nil || r.Aborted != 1 || len(r.Open) != 0 {
		t.Errorf("%+v", r)
	}
	if a, b, c := m.parts[0].markers, m.parts[1].markers, m.parts[2].markers; a != 2 || b != 1 || c != 0 {
		t.Errorf("markers %d %d %d", a, b, c)
	}
	if n := m.count(kmsg.WriteTxnMarkers); n != 2 {
		t.Errorf("%d marker requests to two leaders", n)
	}
	again := p.Promote(testContext(t), m.targets())
	if again[0].Err != nil || again[0].Aborted != 0 || m.parts[0].markers != 2 {
		t.Errorf("repeated: %+v, %d markers", again[0], m.parts[0].markers)
	}
}

func TestLostMarkerAnswerIsLookedAtBeforeRepeating(t *testing.T) {
	m := start(t, 1, 1, []int32{0})
	m.parts[0].producers = []kafka.Producer{{ID: mirroredID, TxnStart: 5}}
	lost := false
	m.lose = func(req kmsg.Request) bool {
		_, is := req.(*kmsg.WriteTxnMarkersRequest)
		defer func() { lost = lost || is }()
		return is && !lost
	}
	p, _ := m.promoter(t, nil)
	r := p.Promote(testContext(t), m.targets())[0]
	if r.Err != nil || r.Aborted != 1 || m.parts[0].markers != 1 {
		t.Errorf("%+v, %d markers", r, m.parts[0].markers)
	}
}

func TestRefusedMarkersNameTheRight(t *testing.T) {
	m := start(t, 1, 1, []int32{0})
	m.parts[0].producers = []kafka.Producer{{ID: mirroredID, TxnStart: 5}}
	m.refuse[kmsg.WriteTxnMarkers.Int16()] = kerr.ClusterAuthorizationFailed
	p, _ := m.promoter(t, nil)
	if err := p.Promote(testContext(t), m.targets())[0].Err; mirror.KindOf(err) != mirror.Refused || !kafka.ClusterAuthorization(err) {
		t.Errorf("%v", err)
	}
	if n := m.count(kmsg.WriteTxnMarkers); n != 1 {
		t.Errorf("asked %d times for what is not allowed", n)
	}
}

func TestAbortFollowsAMovedLeader(t *testing.T) {
	m := start(t, 2, 1, []int32{0, 1})
	m.parts[0].producers = []kafka.Producer{{ID: mirroredID, TxnStart: 5}}
	moved := false
	m.before = func(req kmsg.Request) {
		if _, is := req.(*kmsg.WriteTxnMarkersRequest); is && !moved {
			moved = true
			m.parts[0].leader, m.parts[0].epoch = 1-m.parts[0].leader, m.parts[0].epoch+1
		}
	}
	p, _ := m.promoter(t, nil)
	if r := p.Promote(testContext(t), m.targets())[0]; r.Err != nil || r.Aborted != 1 || m.parts[0].markers != 1 {
		t.Errorf("%+v, %d markers", r, m.parts[0].markers)
	}
}

func TestErrors(t *testing.T) {
	fault := errors.New("fault")
	if got := Errors([]Result{{}, {Err: fault}}); got[0] != nil || !errors.Is(got[1], fault) {
		t.Errorf("%v", got)
	}
}
