package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"pgregory.net/rapid"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

func fetchOf(partition int32, offset int64, id mirror.TopicID) FetchPartition {
	return FetchPartition{Topic: "t", TopicID: id, Partition: partition, Offset: offset, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20}
}

func fetchOnce(t *testing.T, s *FetchSession) map[int32]FetchedPartition {
	t.Helper()
	call := s.Send()
	parts, err := s.Handle(call)
	if err != nil {
		t.Fatal(err)
	}
	call.Release()
	got := map[int32]FetchedPartition{}
	for _, p := range parts {
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		got[p.Partition] = p
	}
	return got
}

func TestSessionTellsOnlyWhatChanged(t *testing.T) {
	for name, max := range map[string]*kversion.Versions{"by id": kversion.V4_0_0(), "by name": kversion.V2_1_0()} {
		t.Run(name, func(t *testing.T) {
			_, c, m := fakeWithTopic(t, 100, kfake.MaxVersions(max))
			conn := dialLeader(t, c, m, 0)
			id := m.Topics["t"].ID
			s := NewFetchSession(conn, FetchConfig{MaxBytes: 1 << 20})
			for p := range int32(100) {
				s.Update(fetchOf(p, 0, id))
			}
			if got := fetchOnce(t, s); len(got) != 100 || !s.Established() {
				t.Fatalf("first: %d partitions, established %v", len(got), s.Established())
			}
			if got := fetchOnce(t, s); len(got) != 0 {
				t.Fatalf("idle: %d partitions", len(got))
			}
			mustProduce(t, conn, 7, testBatch(10, recordbatch.Identity{ProducerID: testProducer}))
			got := fetchOnce(t, s)
			if len(got) != 1 || got[7].HighWatermark != 10 || got[7].LogStart != 0 || got[7].Topic != "t" {
				t.Fatalf("one wrote: %+v", got)
			}
			s.Update(fetchOf(7, 10, id))
			req := s.Build()
			if n := len(req.Topics); n != 1 || len(req.Topics[0].Partitions) != 1 {
				t.Errorf("one moved: %+v", req)
			}
			s.Handle(conn.Send(req))
			s.Forget("t", 7)
			s.Forget("t", 7)
			s.Update(fetchOf(8, 0, id)) // as it was
			req = s.Build()
			if len(req.Topics) != 0 || len(req.ForgottenTopics) != 1 || !slices.Equal(req.ForgottenTopics[0].Partitions, []int32{7}) {
				t.Errorf("one forgotten: %+v", req)
			}
			s.Handle(conn.Send(req))
			mustProduce(t, conn, 7, testBatch(10, recordbatch.Identity{ProducerID: testProducer, Sequence: 10}))
			if got := fetchOnce(t, s); len(got) != 0 || s.Len() != 99 {
				t.Errorf("forgotten, and yet told: %+v", got)
			}
			s.Close(testContext(t))
		})
	}
}

// control answers the next fetch.
func controlFetch(fake *kfake.Cluster, code int16, id int32) {
	fake.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode, resp.SessionID = code, id
		return resp, nil, true
	})
}

func TestLostSessionBeginsAnew(t *testing.T) {
	for _, tt := range []struct {
		err  *kerr.Error
		kept bool // the broker may still have it: the next request closes it
	}{{kerr.FetchSessionIDNotFound, false}, {kerr.InvalidFetchSessionEpoch, true}, {kerr.FetchSessionTopicIDError, true}} {
		fake, c, m := fakeWithTopic(t, 3)
		conn := dialLeader(t, c, m, 0)
		s := NewFetchSession(conn, FetchConfig{MaxBytes: 1 << 20})
		for p := range int32(3) {
			s.Update(fetchOf(p, 0, m.Topics["t"].ID))
		}
		fetchOnce(t, s)
		id := s.id
		controlFetch(fake, tt.err.Code, 0)
		if _, err := s.Handle(s.Send()); !SessionLost(err) || mirror.KindOf(err) != mirror.Retriable {
			t.Fatalf("%s: %v", tt.err.Message, err)
		}
		req := s.Build()
		if want := map[bool]int32{true: id, false: 0}[tt.kept]; req.SessionEpoch != 0 || req.SessionID != want {
			t.Errorf("%s: next is session %d epoch %d", tt.err.Message, req.SessionID, req.SessionEpoch)
		}
		s.Handle(conn.Send(req))
		if got := len(req.Topics[0].Partitions); got != 3 || !s.Established() {
			t.Errorf("%s: %d partitions, established %v", tt.err.Message, got, s.Established())
		}
	}
}

// A broker whose session cache is full answers with id 0; that is no error, and every request is full then.
func TestBrokerWithoutRoomForSessions(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 3)
	conn := dialLeader(t, c, m, 0)
	s := NewFetchSession(conn, FetchConfig{MaxBytes: 1 << 20})
	for p := range int32(3) {
		s.Update(fetchOf(p, 0, m.Topics["t"].ID))
	}
	for range 3 {
		controlFetch(fake, 0, 0)
		req := s.Build()
		if req.SessionID != 0 || req.SessionEpoch != 0 || len(req.Topics) != 1 || len(req.Topics[0].Partitions) != 3 {
			t.Fatalf("request %+v", req)
		}
		if _, err := s.Handle(conn.Send(req)); err != nil || s.Established() {
			t.Fatalf("established %v, %v", s.Established(), err)
		}
	}
	fetchOnce(t, s)
	if !s.Established() {
		t.Error("with room again, no session")
	}
}

func TestSessionIsGivenBack(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	conn := dialLeader(t, c, m, 0)
	s := NewFetchSession(conn, FetchConfig{MaxBytes: 1 << 20})
	s.Close(testContext(t)) // none yet
	s.Update(fetchOf(0, 0, m.Topics["t"].ID))
	fetchOnce(t, s)
	id := s.id
	closed := make(chan *kmsg.FetchRequest, 1)
	fake.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.DropControl()
		closed <- req.(*kmsg.FetchRequest)
		return nil, nil, false
	})
	s.Close(testContext(t))
	if req := <-closed; req.SessionID != id || req.SessionEpoch != -1 || len(req.Topics) != 0 {
		t.Errorf("closed by %+v", req)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fetchOnce(t, s)
	s.Close(ctx) // returns, though nobody waits
	conn.Close()
	s.Close(testContext(t))
	if _, err := s.Handle(s.Send()); err == nil || s.Established() {
		t.Error("a session without a connection")
	}
}

// A model of a broker's side (KIP-227): adds and updates first, then forgets.
type brokerSession struct {
	parts map[string]int64
}

func (b *brokerSession) apply(req *kmsg.FetchRequest) {
	name := func(topic string, id mirror.TopicID, p int32) string {
		if req.Version >= fetchByID {
			topic = ""
		} else {
			id = mirror.TopicID{}
		}
		return fmt.Sprintf("%s/%s/%d", topic, id, p)
	}
	if req.SessionEpoch == 0 {
		b.parts = map[string]int64{}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			b.parts[name(t.Topic, t.TopicID, p.Partition)] = p.FetchOffset
		}
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			delete(b.parts, name(t.Topic, t.TopicID, p))
		}
	}
}

// Whatever is added, moved, forgotten and recreated, in whatever order, the broker's session holds exactly what ours does.
func TestSessionsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := versions{known: true}
		v.top[kmsg.Fetch.Int16()] = int16(rapid.SampledFrom([]int{10, 12, 17}).Draw(t, "version"))
		s := NewFetchSession(&Conn{versions: v}, FetchConfig{})
		var broker brokerSession
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				topic := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic")
				p := rapid.Int32Range(0, 3).Draw(t, "partition")
				if rapid.Bool().Draw(t, "forget") {
					s.Forget(topic, p)
					continue
				}
				id := mirror.TopicID{topic[0], byte(rapid.IntRange(1, 2).Draw(t, "generation"))}
				if rapid.IntRange(0, 9).Draw(t, "nameless") == 0 {
					id = mirror.TopicID{}
				}
				s.Update(FetchPartition{Topic: topic, TopicID: id, Partition: p, Offset: rapid.Int64Range(0, 9).Draw(t, "offset")})
			}
			req := s.Build()
			req.Version, _ = v.choose(req)
			broker.apply(req)
			want := map[string]int64{}
			for key, e := range s.parts {
				topic, id := key.topic, e.TopicID
				if req.Version >= fetchByID {
					topic = ""
				} else {
					id = mirror.TopicID{}
				}
				want[fmt.Sprintf("%s/%s/%d", topic, id, key.partition)] = e.Offset
			}
			if !maps.Equal(broker.parts, want) {
				t.Fatalf("broker holds %v, want %v", broker.parts, want)
			}
			s.advance(rapid.SampledFrom([]int32{5, 5, 5, 5, 0}).Draw(t, "answered"))
		}
	})
}

func TestFetchedPartition(t *testing.T) {
	p := kmsg.NewFetchResponseTopicPartition()
	p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 4, 77
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 2, 5
	p.ErrorCode = kerr.FencedLeaderEpoch.Code
	for _, first := range []int64{9, 3} {
		a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		a.ProducerID, a.FirstOffset = 1, first
		p.AbortedTransactions = append(p.AbortedTransactions, a)
	}
	f := fetched(&p)
	if !FencedLeaderEpoch(f.Err) || f.Leader != (Leader{2, 5}) || f.Diverging != (mirror.Position{LeaderEpoch: 4, Offset: 77}) {
		t.Errorf("%+v", f)
	}
	if !slices.Equal(f.Aborted, []AbortedTxn{{1, 3}, {1, 9}}) {
		t.Errorf("aborted %v", f.Aborted)
	}
	quiet := kmsg.NewFetchResponseTopicPartition()
	if f := fetched(&quiet); f.Diverging != mirror.NoPosition || f.Leader != (Leader{-1, -1}) || f.Err != nil {
		t.Errorf("%+v", f)
	}
}
