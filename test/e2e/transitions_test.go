package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

const keyListReassignments = 46

// stage is a mirror whose topics, of one partition each, are brought into every state and out of it.
type stage struct {
	t    *testing.T
	m    *Daemon
	p    Pair
	from map[mirror.State]int // refusals asked for, by the state
}

// at waits until topics are in a state.
func (s stage) at(state mirror.State, topics ...string) {
	s.t.Helper()
	s.m.Await(state.String(), 20*time.Second, topics...)
}

// do gives a command without waiting for its end.
func (s stage) do(verb string, topics ...string) {
	s.t.Helper()
	s.m.Do(verb, "--mirror", "east", "--topics", strings.Join(topics, ","), "--no-wait")
}

// set proposes a state through the door; the answer is the error code and its message.
func (s stage) set(state mirror.State, topic string) (int16, string) {
	s.t.Helper()
	req := mirror.WriteMirrorStatesRequest{MirrorName: "east", Topics: []mirror.WriteTopic{{
		Name:       topic,
		Partitions: []mirror.WritePartition{{LastMirrorEpoch: -1, State: state}},
	}}}
	var resp mirror.WriteMirrorStatesResponse
	want(s.t, "code of HTTP", s.m.Post("/api/v1/WriteMirrorStates", req, &resp), 200)
	return resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[0].Partitions[0].ErrorMessage
}

func (s stage) mustSet(state mirror.State, topics ...string) {
	s.t.Helper()
	for _, topic := range topics {
		if code, message := s.set(state, topic); code != 0 {
			s.t.Errorf("%s could not be set to %s: %d %s", topic, state, code, message)
		}
	}
}

// held waits until some requests wait before a gate of a cluster.
func (s stage) held(c *Cluster) {
	s.t.Helper()
	Eventually(s.t, 10*time.Second, func() error {
		if c.Nodes[0].Proxy.Held() == 0 {
			return fmt.Errorf("nothing is held")
		}
		return nil
	})
}

// Every transition of the table is made on a real cluster: by command, by failure and its retry, or by request; and every
// other one that can be asked for is refused. States that last for a moment only are held by clusters that do not answer.
func TestEveryTransition(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	set := p.Proxied()
	set.Retry = "initial_backoff: 2500ms, max_backoff: 2500ms"
	s := stage{t, NewDaemon(t, set), p, map[mirror.State]int{}}
	topics := strings.Split("calm,failed,parked,raised,a1,a2,a3,b1,b2,b3,c1,c2,c3", ",")
	for _, topic := range topics {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 5)...) // only with a record the source's leader epoch is known
	}
	s.m.Start()
	Eventually(t, soon, func() error {
		if listed := s.m.Do("list").Out; !strings.Contains(listed, "east") {
			return fmt.Errorf("the mirror of the file does not exist yet:\n%s", listed)
		}
		return nil
	})
	s.m.Do("start", "--mirror", "east", "--topics", ".+")
	s.at(mirror.Mirroring, topics...)
	AwaitLevel(t, p.S, p.D, 20*time.Second, topics...)

	s.commanded()
	s.failing()
	s.fenced("a1", "a2", "a3")
	s.comparing("b1", "b2", "b3")
	s.draining("c1", "c2", "c3")
	s.refusals()

	seen := Transitions(SoundState(t, p.D))
	for _, to := range mirror.States() {
		for _, from := range mirror.EnterableFrom(to) {
			x := Transition{from, to}
			if seen[x] == 0 && x != (Transition{mirror.Unknown, mirror.Failed}) { // see TestFailedBeforeItBegan
				t.Errorf("%s was not seen", x)
			}
		}
		if s.from[to] == 0 && to != mirror.Unknown {
			t.Errorf("from %s nothing was refused", to)
		}
	}
}

// commanded: PAUSED, STOPPED and begun again.
func (s stage) commanded() {
	s.do("pause", "calm")
	s.at(mirror.Paused, "calm")
	s.do("resume", "calm")
	s.at(mirror.Mirroring, "calm")
	s.do("stop", "calm")
	s.at(mirror.Stopped, "calm")
	s.do("start", "calm")
	s.at(mirror.Mirroring, "calm")
	s.do("pause", "calm")
	s.at(mirror.Paused, "calm")
	s.do("stop", "calm")
	s.at(mirror.Stopped, "calm")
	s.mustSet(mirror.EpochFencing, "raised")
	s.at(mirror.Mirroring, "raised")
}

// failing: a failure is retried, and the wish wins over it.
func (s stage) failing() {
	s.mustSet(mirror.Failed, "failed")
	s.at(mirror.Failed, "failed")
	s.at(mirror.Mirroring, "failed")
	s.mustSet(mirror.Failed, "failed", "raised", "parked")
	s.do("pause", "failed")
	s.mustSet(mirror.EpochFencing, "raised")
	s.mustSet(mirror.LogTruncation, "parked")
	s.at(mirror.Paused, "failed")
	s.at(mirror.Mirroring, "raised", "parked")
	s.mustSet(mirror.Failed, "failed")
	s.mustSet(mirror.Paused, "failed")
	s.do("resume", "failed")
	s.at(mirror.Mirroring, "failed")
	s.mustSet(mirror.Failed, "failed")
	s.do("stop", "failed")
	s.at(mirror.Stopped, "failed")
}

// fenced: epochs are about to be raised, and the destination does not answer.
func (s stage) fenced(pause, stop, fail string) {
	s.p.D.Nodes[0].Proxy.Hold(keyListReassignments)
	s.mustSet(mirror.EpochFencing, pause, stop, fail)
	s.held(s.p.D)
	s.refuses(mirror.EpochFencing, fail)
	s.mustSet(mirror.Failed, fail)
	s.do("pause", pause)
	s.do("stop", stop)
	s.at(mirror.Paused, pause)
	s.at(mirror.Stopping, stop)
	s.p.D.Nodes[0].Proxy.Heal()
	s.at(mirror.Stopped, stop)
	s.at(mirror.Mirroring, fail)
}

// comparing: logs are about to be compared, and the source does not answer.
func (s stage) comparing(pause, stop, fail string) {
	s.p.S.Nodes[0].Proxy.BlackHole()
	s.mustSet(mirror.Failed, pause, stop, fail)
	s.mustSet(mirror.LogTruncation, pause, stop, fail)
	s.at(mirror.LogTruncation, pause, stop, fail)
	s.refuses(mirror.LogTruncation, fail)
	s.mustSet(mirror.Failed, fail)
	s.do("pause", pause)
	s.do("stop", stop)
	s.at(mirror.Paused, pause)
	s.at(mirror.Stopped, stop)
	s.p.S.Nodes[0].Proxy.Heal()
	s.at(mirror.Mirroring, fail)
}

// draining: what was sent to the destination is not answered.
func (s stage) draining(stop, fail, last string) {
	s.p.D.Nodes[0].Proxy.HoldSome(keyProduce, ofData)
	for _, topic := range []string{stop, fail} {
		s.p.S.Send(s.t, nil, Numbered(topic, 0, 0, 10)...)
	}
	s.held(s.p.D)
	s.do("pause", stop, fail)
	s.at(mirror.Pausing, stop, fail)
	s.refuses(mirror.Pausing, fail)
	s.do("stop", stop)
	s.at(mirror.Stopping, stop)
	s.refuses(mirror.Stopping, stop)
	s.mustSet(mirror.Failed, fail)
	s.p.D.Nodes[0].Proxy.Heal()
	s.at(mirror.Stopped, stop)
	s.at(mirror.Paused, fail)

	s.p.D.Nodes[0].Proxy.Hold(keyDescribeProducers)
	s.do("stop", last)
	s.held(s.p.D)
	s.at(mirror.Stopping, last)
	s.mustSet(mirror.Failed, last)
	s.p.D.Nodes[0].Proxy.Heal()
	s.at(mirror.Stopped, last)
}

// refuses demands that a topic is in a state, and that no request moves it to one that the table does not lead to from there.
func (s stage) refuses(from mirror.State, topic string) {
	s.t.Helper()
	s.at(from, topic)
	for _, to := range mirror.States() {
		if mirror.CanEnter(from, to) {
			continue
		}
		if code, message := s.set(to, topic); code != mirror.CodeInvalidRequest || !strings.Contains(message, to.String()) && to != mirror.Unknown {
			s.t.Errorf("%s → %s is answered with %d %s", from, to, code, message)
		}
		s.from[from]++
	}
	s.at(from, topic)
}

// refusals: what the table does not have is refused with Kafka's code, saying what would be legal; a request about an
// older state epoch likewise; and nobody writes without the token.
func (s stage) refusals() {
	s.mustSet(mirror.Failed, "b3")
	s.refuses(mirror.Failed, "b3")
	for topic, from := range map[string]mirror.State{"raised": mirror.Mirroring, "c2": mirror.Paused, "calm": mirror.Stopped} {
		s.refuses(from, topic)
	}
	old := int32(0)
	req := mirror.WriteMirrorStatesRequest{MirrorName: "east", Topics: []mirror.WriteTopic{{
		Name:       "raised",
		Partitions: []mirror.WritePartition{{State: mirror.Mirroring, StateEpoch: &old}, {PartitionIndex: 7}},
	}}}
	var resp mirror.WriteMirrorStatesResponse
	want(s.t, "code of HTTP", s.m.Post("/api/v1/WriteMirrorStates", req, &resp), 200)
	want(s.t, "old state epoch", resp.Topics[0].Partitions[0].ErrorCode, mirror.CodeFencedStateEpoch)
	want(s.t, "no such partition", resp.Topics[0].Partitions[1].ErrorCode, mirror.CodeUnknownTopicOrPartition)
	want(s.t, "without the token", s.m.post("/api/v1/WriteMirrorStates", "", req, nil), 401)
	want(s.t, "no JSON object", s.m.Post("/api/v1/WriteMirrorStates", "x", nil), 400)
	var read mirror.ReadMirrorStatesResponse
	ask := mirror.ReadMirrorStatesRequest{MirrorName: "east", Topics: []mirror.ReadTopic{{Name: "calm", Partitions: []mirror.ReadPartition{{}}}}}
	want(s.t, "code of HTTP", s.m.Post("/api/v1/ReadMirrorStates", ask, &read), 200)
	if got := read.Topics[0].Partitions[0]; got.State != mirror.Stopped || got.PreviousState != mirror.Stopping || got.StateEpoch < 6 {
		s.t.Errorf("read: %+v", got)
	}
	want(s.t, "code of HTTP", s.m.Post("/api/v1/WriteMirrorStates", mirror.WriteMirrorStatesRequest{MirrorName: "east", StoppedTopics: []string{"raised"}}, &resp), 200)
	s.at(mirror.Stopped, "raised")
}

// UNKNOWN lasts for no moment, as a rule. Here it does: an instance owns shards that it cannot write to just then, and the
// instance that owns the mirror adds partitions to them. What is asked for meanwhile comes first: FAILED is entered from
// UNKNOWN, and the retry begins where every partition begins.
func TestFailedBeforeItBegan(t *testing.T) {
	t.Parallel()
	const before, after = 12, 36
	p := SharedPair(t)
	p.S.Topic(t, "t", before)
	daemons := map[string]*Daemon{}
	for _, name := range []string{"one", "two"} {
		s := p.Proxied("t")
		s.Extra = []string{"instance_id: " + name}
		s.Retry = "initial_backoff: 1s, max_backoff: 1s"
		daemons[name] = NewDaemon(t, s)
		daemons[name].Start()
	}
	boss, worker := split(t, daemons)
	p.D.Nodes[0].Proxy.HoldSome(keyTxnOffsetCommit, func(frame []byte) bool { return bytes.Contains(frame, []byte("-"+worker+"-")) })
	for i := range int32(before) {
		p.S.Send(t, nil, Numbered("t", i, 0, 1)...) // positions are reported, by each shard
	}
	s := stage{t: t, m: daemons[worker], p: p}
	s.held(p.D)
	p.S.Grow(t, "t", after)
	daemons[boss].refreshed(2)
	codes := make(chan int16, after)
	for i := range int32(after - before) {
		go func() { codes <- daemons[worker].setFailed("t", before+i) }()
	}
	daemons[boss].refreshed(1)
	p.D.Nodes[0].Proxy.Heal()
	taken := 0
	for range after - before {
		if code := <-codes; code == 0 {
			taken++
		}
	}
	seen := Transitions(SoundState(t, p.D))
	t.Logf("%d partitions were set to FAILED, %d of them before they had begun", taken, seen[Transition{mirror.Unknown, mirror.Failed}])
	if seen[Transition{mirror.Unknown, mirror.Failed}] == 0 {
		t.Error("none has FAILED before it began")
	}
	for i := range int32(after) {
		p.S.Send(t, nil, Numbered("t", i, 1, 1)...)
	}
	AwaitLevel(t, p.S, p.D, soon, "t")
	daemons[boss].Await("MIRRORING", soon, "t")
	SoundState(t, p.D)
}

// split waits until both instances own partitions, and tells which of them owns the mirror.
func split(t *testing.T, daemons map[string]*Daemon) (boss, worker string) {
	t.Helper()
	Eventually(t, soon, func() error {
		if one, two := daemons["one"].Metric("mirrord_shards_owned"), daemons["two"].Metric("mirrord_shards_owned"); min(one, two) < 2 || one+two != 5 {
			return fmt.Errorf("shards are still on the move: %v and %v", one, two)
		}
		var mirrors []struct{ Owner string }
		var body bytes.Buffer
		if err := daemons["one"].get("/api/v1/mirrors", &body); err != nil {
			return err
		}
		if err := json.Unmarshal(body.Bytes(), &mirrors); err != nil || len(mirrors) != 1 {
			return fmt.Errorf("mirrors: %s (%w)", body.String(), err)
		}
		if of := distinct(owners(daemons["one"], "t")); len(of) != 2 || of[""] {
			return fmt.Errorf("owners: %v", of)
		}
		boss, worker = "one", "two"
		if strings.HasPrefix(mirrors[0].Owner, "two-") {
			boss, worker = worker, boss
		}
		return nil
	})
	return boss, worker
}

// setFailed asks for FAILED, and gives the code of the answer.
func (d *Daemon) setFailed(topic string, partition int32) int16 {
	req := mirror.WriteMirrorStatesRequest{MirrorName: "east", Topics: []mirror.WriteTopic{{
		Name: topic, Partitions: []mirror.WritePartition{{PartitionIndex: partition, LastMirrorEpoch: -1, State: mirror.Failed}},
	}}}
	var resp mirror.WriteMirrorStatesResponse
	if d.Post("/api/v1/WriteMirrorStates", req, &resp) != 200 {
		return -1
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}
