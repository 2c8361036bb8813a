package kafka

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

const testProducer = mirror.IdentityProducerIDs + 5

// What is written by hand must be what kmsg would write, for every version.
func TestProduceEncodingEqualsKmsg(t *testing.T) {
	txn := "txn"
	ids := []mirror.TopicID{{1, 2, 3}, {9}}
	for version := int16(3); version <= produceByID; version++ {
		for _, transactional := range []*string{nil, &txn} {
			ours := &ProduceRequest{TransactionalID: transactional, Timeout: 1234e6, version: version}
			theirs := &kmsg.ProduceRequest{Version: version, TransactionID: transactional, Acks: -1, TimeoutMillis: 1234}
			for i, name := range []string{"orders", "payments"} {
				topic := ProduceTopic{Name: name, ID: ids[i]}
				kt := kmsg.NewProduceRequestTopic()
				kt.Topic, kt.TopicID = name, ids[i]
				for p := range int32(3) {
					batch := bytes.Repeat([]byte{byte(p)}, int(p)*200+1)
					topic.Partitions = append(topic.Partitions, ProducePartition{p, batch})
					kp := kmsg.NewProduceRequestTopicPartition()
					kp.Partition, kp.Records = p, batch
					kt.Partitions = append(kt.Partitions, kp)
				}
				ours.Topics, theirs.Topics = append(ours.Topics, topic), append(theirs.Topics, kt)
			}
			want := kmsg.NewRequestFormatter(kmsg.FormatterClientID("id")).AppendRequest(nil, theirs, 77)
			e := produceEncoder{flexible: version >= 9, byID: version >= produceByID}
			e.encode(ours, "id", 77)
			if got := bytes.Join(e.appendPieces(nil), nil); !bytes.Equal(got, want) {
				t.Errorf("version %d:\n%x, want\n%x", version, got, want)
			}
			resp := theirs.ResponseKind().(*kmsg.ProduceResponse)
			if len(ours.results(resp)) != 6 || !errors.Is(ours.results(resp)[5].Err, ErrMissing) || !AfterAppendDoubt(ErrMissing) {
				t.Error("a batch that the answer leaves out is in doubt")
			}
		}
	}
}

func TestProduceVersions(t *testing.T) {
	name := "x"
	named := []ProduceTopic{{Name: "a", ID: mirror.TopicID{1}}, {Name: "b"}}
	for _, tt := range []struct {
		req  ProduceRequest
		want int16
	}{
		{ProduceRequest{Topics: named[:1]}, 13},
		{ProduceRequest{Topics: named}, 12},
		{ProduceRequest{Topics: named[:1], TransactionalID: &name}, 11},
	} {
		if got := tt.req.cap(); got != tt.want {
			t.Errorf("cap of %+v = %d, want %d", tt.req, got, tt.want)
		}
	}
}

func TestProduceByIdAndByName(t *testing.T) {
	for name, max := range map[string]*kversion.Versions{"newest": kversion.V4_0_0(), "by id": kversion.V4_1_0(), "oldest": kversion.V2_1_0()} {
		t.Run(name, func(t *testing.T) {
			_, c, m := fakeWithTopic(t, 2, kfake.MaxVersions(max))
			conn := dialLeader(t, c, m, 0)
			id := m.Topics["t"].ID
			req := &ProduceRequest{Timeout: 1e9, Topics: []ProduceTopic{{Name: "t", ID: id, Partitions: []ProducePartition{
				{1, testBatch(3, recordbatch.Identity{ProducerID: testProducer})},
				{0, testBatch(5, recordbatch.Identity{ProducerID: testProducer})},
				{9, testBatch(5, recordbatch.Identity{ProducerID: testProducer})},
			}}}}
			call := conn.SendProduce(req)
			results, err := call.Produced()
			if err != nil {
				t.Fatal(err)
			}
			if (req.version == produceByID) != conn.ByID() {
				t.Errorf("version %d, served by id: %v", req.version, conn.ByID())
			}
			at := []int32{results[0].Partition, results[1].Partition, results[2].Partition}
			if !slices.Equal(at, []int32{1, 0, 9}) {
				t.Errorf("results are not in the order of the request: %v", at)
			}
			for _, r := range results[:2] {
				if r.Err != nil || r.BaseOffset != 0 || r.LogAppendTime != -1 || r.Topic != "t" || r.TopicID != id {
					t.Errorf("result %+v", r)
				}
			}
			if !UnknownTopic(results[2].Err) {
				t.Errorf("partition that does not exist: %v", results[2].Err)
			}
			if r := mustProduce(t, conn, 0, testBatch(1, recordbatch.Identity{ProducerID: testProducer, Sequence: 5})); r.BaseOffset != 5 {
				t.Errorf("by name: %+v", r)
			}
		})
	}
}

func TestR9_ProduceByIdRefusesARecreatedTopic(t *testing.T) {
	_, c, m := fakeWithTopic(t, 1, kfake.MaxVersions(kversion.V4_1_0()))
	conn := dialLeader(t, c, m, 0)
	ctx := testContext(t)
	old := m.Topics["t"].ID
	if _, err := c.Admin().DeleteTopics(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	req := onePartition(0, testBatch(1, recordbatch.Identity{ProducerID: testProducer}))
	req.Topics[0].ID = old
	results, err := conn.SendProduce(req).Produced()
	if err != nil || !UnknownTopic(results[0].Err) || AfterAppendDoubt(results[0].Err) {
		t.Errorf("%+v, %v", results, err)
	}
	if r := c.Resume(ctx, []TP{{Topic: "t", TopicID: old, LeaderEpoch: -1}}); !UnknownTopic(r[TP{Topic: "t", TopicID: old, LeaderEpoch: -1}].Err) {
		t.Errorf("resume of a recreated topic: %+v", r)
	}
}

// The predicates by which a writer decides, on a broker's own answers.
func TestProduceAnswersAreTold(t *testing.T) {
	_, c, m := fakeWithTopic(t, 1)
	conn := dialLeader(t, c, m, 0)
	send := func(id recordbatch.Identity) ProduceResult {
		t.Helper()
		results, err := conn.SendProduce(onePartition(0, testBatch(2, id))).Produced()
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	id := recordbatch.Identity{ProducerID: testProducer, ProducerEpoch: 3}
	next := recordbatch.Identity{ProducerID: testProducer, ProducerEpoch: 3, Sequence: 2}
	gap := recordbatch.Identity{ProducerID: testProducer, ProducerEpoch: 3, Sequence: 20}
	stale := recordbatch.Identity{ProducerID: testProducer, ProducerEpoch: 2}
	if r := send(id); r.Err != nil || r.BaseOffset != 0 {
		t.Errorf("first: %+v", r)
	}
	if r := send(id); r.Err != nil || r.BaseOffset != 0 {
		t.Errorf("repeated: %+v", r)
	}
	if r := send(next); r.Err != nil || r.BaseOffset != 2 {
		t.Errorf("next: %+v", r)
	}
	if r := send(gap); !OutOfOrderSequence(r.Err) || !AfterAppendDoubt(r.Err) {
		t.Errorf("gap: %+v", r)
	}
	if r := send(stale); !InvalidProducerEpoch(r.Err) || mirror.KindOf(r.Err) != mirror.Fenced || AfterAppendDoubt(r.Err) {
		t.Errorf("stale: %+v", r)
	}
	b := testBatch(2, next)
	b[len(b)-1] ^= 1
	results, err := conn.SendProduce(onePartition(0, b)).Produced()
	if err != nil || !Corrupt(results[0].Err) || AfterAppendDoubt(results[0].Err) {
		t.Errorf("damaged: %+v, %v", results, err)
	}
}

func TestProduceFaults(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	conn := dialLeader(t, c, m, 0)
	for i, tt := range []struct {
		err   *kerr.Error
		kind  mirror.Kind
		doubt bool
	}{
		{kerr.RequestTimedOut, mirror.Retriable, true},
		{kerr.NotEnoughReplicasAfterAppend, mirror.Retriable, true},
		{kerr.NotLeaderForPartition, mirror.Retriable, true},
		{kerr.KafkaStorageError, mirror.Unreachable, true},
		{kerr.UnknownServerError, mirror.Retriable, true},
		{kerr.NotEnoughReplicas, mirror.Unreachable, false},
		{kerr.MessageTooLarge, mirror.Refused, false},
		{kerr.TopicAuthorizationFailed, mirror.Refused, false},
	} {
		fake.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			resp := req.ResponseKind().(*kmsg.ProduceResponse)
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = "t"
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.ErrorCode, rp.BaseOffset = tt.err.Code, -1
			rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = 4, 9
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		results, err := conn.SendProduce(onePartition(0, testBatch(1, recordbatch.Identity{}))).Produced()
		if err != nil {
			t.Fatal(err)
		}
		r := results[0]
		if mirror.KindOf(r.Err) != tt.kind || AfterAppendDoubt(r.Err) != tt.doubt {
			t.Errorf("%d %s: kind %v, doubt %v", i, tt.err.Message, mirror.KindOf(r.Err), AfterAppendDoubt(r.Err))
		}
		if r.Leader != (Leader{4, 9}) && conn.MaxVersion(0) >= 10 {
			t.Errorf("leader %+v", r.Leader)
		}
	}
}

// Until a call has ended, its batches belong to the socket; so it does not end while they are being written.
func TestCallDoesNotEndBeforeItsRequestLeft(t *testing.T) {
	addr := silentListener(t)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &Conn{
		cfg: Config{RequestTimeout: within}, conn: nc, tcp: nc.(*net.TCPConn), pool: &buffers{}, ended: make(chan struct{}),
		cancel: func() {}, versions: versions{known: true},
	}
	c.versions.top[0] = 12
	sent := make(chan *Call)
	go func() { sent <- c.SendProduce(onePartition(0, make([]byte, 64<<20))) }()
	var call *Call
	eventually(t, "on its way", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		call = c.writing
		return call != nil
	})
	if _, err := c.dequeue(call.correlation); err != nil {
		t.Fatal(err)
	}
	c.finish(call, nil, errors.New("an answer before its time"))
	select {
	case <-call.Done():
		t.Fatal("ended while it was being written")
	case <-sent:
		t.Fatal("a peer that does not read has taken it")
	default:
	}
	c.Close()
	<-sent
	if _, err := call.Response(); err == nil || err.Error() != "an answer before its time" {
		t.Error(err)
	}
}
