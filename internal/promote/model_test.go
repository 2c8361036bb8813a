package promote

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// placed is a partition as a controller and its leader know it.
type placed struct {
	leader, epoch         int32
	replicas, isr, adding []int32
	producers             []kafka.Producer
	markers               int
}

// model plays a controller and its brokers by the rules that were seen on real ones (experiments L19, X17): a fake
// cluster has no reassignments of its own. It is called by one goroutine of the fake, and by the test under mu.
type model struct {
	mu        sync.Mutex
	fake      *kfake.Cluster
	topic     string
	id        mirror.TopicID
	brokers   []int32
	parts     []*placed
	asked     map[int16]int
	written   int                         // effects on placements
	complete  bool                        // additions are completed at once
	zookeeper bool                        // only the controller takes placement requests
	refuse    map[int16]*kerr.Error       // by key
	lose      func(req kmsg.Request) bool // the effect happens, the answer is lost
	before    func(req kmsg.Request)      // under mu
	native    map[int64]string            // transactional ids
}

// start runs a model of a topic whose partitions have the given replicas, in turn.
func start(t *testing.T, brokers int, partitions int, replicas ...[]int32) *model {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(int32(partitions), "t"), kfake.ClusterID("model"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	m := &model{fake: fake, topic: "t", id: mirror.TopicID{1}, asked: map[int16]int{}, refuse: map[int16]*kerr.Error{}}
	for b := range int32(brokers) {
		m.brokers = append(m.brokers, b)
	}
	for i := range partitions {
		r := replicas[i%len(replicas)]
		m.parts = append(m.parts, &placed{leader: r[0], replicas: slices.Clone(r), isr: slices.Clone(r)})
	}
	fake.Control(m.serve)
	return m
}

func (m *model) serve(req kmsg.Request) (kmsg.Response, error, bool) {
	m.fake.KeepControl()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[req.Key()]++
	if m.before != nil {
		m.before(req)
	}
	resp, ok := m.answer(req)
	if ok && m.lose != nil && m.lose(req) {
		return nil, errors.New("answer lost"), true
	}
	return resp, nil, ok
}

func (m *model) answer(kreq kmsg.Request) (kmsg.Response, bool) {
	switch req := kreq.(type) {
	case *kmsg.MetadataRequest:
		return m.metadata(req)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return m.reassign(req), true
	case *kmsg.ListPartitionReassignmentsRequest:
		return m.reassignments(req), true
	case *kmsg.ElectLeadersRequest:
		return m.elect(req), true
	case *kmsg.DescribeProducersRequest:
		return m.describeProducers(req), true
	case *kmsg.ListOffsetsRequest:
		return m.offsets(req), true
	case *kmsg.WriteTxnMarkersRequest:
		return m.writeMarkers(req), true
	case *kmsg.ListTransactionsRequest:
		return m.transactions(req), true
	}
	return nil, false
}

// metadata adds the model's partitions to what the fake says about brokers.
func (m *model) metadata(req *kmsg.MetadataRequest) (kmsg.Response, bool) {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for i, addr := range m.fake.ListenAddrs() {
		if !slices.Contains(m.brokers, int32(i)) {
			continue
		}
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = int32(i), strings.Split(addr, ":")[0], port(addr)
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ControllerID, resp.ClusterID = m.brokers[0], kmsg.StringPtr("model")
	for _, asked := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = asked.Topic
		if *asked.Topic != m.topic {
			t.ErrorCode = kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, t)
			continue
		}
		t.TopicID = m.id
		for i, p := range m.parts {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch, mp.Replicas, mp.ISR = int32(i), p.leader, p.epoch, p.replicas, p.isr
			t.Partitions = append(t.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp, true
}

func port(addr string) (n int32) {
	for _, c := range addr[strings.LastIndex(addr, ":")+1:] {
		n = 10*n + c - '0'
	}
	return n
}

func (m *model) reassign(req *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	if m.zookeeper && m.fake.CurrentNode() != m.brokers[0] {
		resp.ErrorCode = kerr.NotController.Code
		return resp
	}
	if e := m.refuse[req.Key()]; e != nil {
		resp.ErrorCode = e.Code
		return resp
	}
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = p.Partition
			if e := m.parts[p.Partition].reassign(p.Replicas, m.complete); e != nil {
				rp.ErrorCode = e.Code
			} else {
				m.written++
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// reassign is what a controller does; nil cancels.
func (p *placed) reassign(to []int32, complete bool) *kerr.Error {
	if to == nil {
		if len(p.adding) == 0 {
			return kerr.NoReassignmentInProgress
		}
		p.replicas, p.adding = without(p.replicas, p.adding), nil
		p.epoch++
		return nil
	}
	if len(without(p.replicas, to)) > 0 { // a replica goes
		p.epoch++
		p.isr = without(p.isr, without(p.isr, to))
		if !slices.Contains(p.isr, p.leader) {
			p.leader = p.isr[0]
		}
	}
	added := without(to, p.replicas)
	p.adding = append(without(p.adding, without(p.adding, to)), added...)
	p.replicas = slices.Clone(to)
	if complete {
		p.complete()
	}
	return nil
}

func (p *placed) complete() {
	p.isr = append(p.isr, p.adding...)
	p.adding = nil
}

func (m *model) reassignments(req *kmsg.ListPartitionReassignmentsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	t := kmsg.NewListPartitionReassignmentsResponseTopic()
	t.Topic = m.topic
	for i, p := range m.parts {
		if len(p.adding) > 0 {
			rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			rp.Partition, rp.Replicas, rp.AddingReplicas = int32(i), p.replicas, p.adding
			t.Partitions = append(t.Partitions, rp)
		}
	}
	resp.Topics = append(resp.Topics, t)
	return resp
}

func (m *model) elect(req *kmsg.ElectLeadersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, i := range t.Partitions {
			p := m.parts[i]
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition = i
			switch first := p.replicas[0]; {
			case first == p.leader:
				rp.ErrorCode = kerr.ElectionNotNeeded.Code
			case !slices.Contains(p.isr, first):
				rp.ErrorCode = kerr.PreferredLeaderNotAvailable.Code
			default:
				p.leader = first
				p.epoch++
				m.written++
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (m *model) describeProducers(req *kmsg.DescribeProducersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, i := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = i
			for _, pr := range m.parts[i].producers {
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.CoordinatorEpoch, a.CurrentTxnStartOffset = pr.ID, int32(pr.Epoch), pr.CoordinatorEpoch, pr.TxnStart
				rp.ActiveProducers = append(rp.ActiveProducers, a)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// offsets answers as the leader would, and only as the leader.
func (m *model) offsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, asked := range t.Partitions {
			p := m.parts[asked.Partition]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = asked.Partition, 10, p.epoch
			switch {
			case asked.CurrentLeaderEpoch >= 0 && asked.CurrentLeaderEpoch < p.epoch:
				rp.ErrorCode = kerr.FencedLeaderEpoch.Code
			case asked.CurrentLeaderEpoch > p.epoch:
				rp.ErrorCode = kerr.UnknownLeaderEpoch.Code
			case m.fake.CurrentNode() != p.leader:
				rp.ErrorCode = kerr.NotLeaderForPartition.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (m *model) writeMarkers(req *kmsg.WriteTxnMarkersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for _, mk := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = mk.ProducerID
		for _, t := range mk.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, i := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition = i
				if e := m.parts[i].end(mk, m.fake.CurrentNode(), m.refuse[req.Key()]); e != nil {
					rp.ErrorCode = e.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp
}

func (p *placed) end(mk kmsg.WriteTxnMarkersRequestMarker, broker int32, refused *kerr.Error) *kerr.Error {
	if refused != nil {
		return refused
	}
	if broker != p.leader {
		return kerr.NotLeaderForPartition
	}
	for i := range p.producers {
		if pr := &p.producers[i]; pr.ID == mk.ProducerID {
			if mk.ProducerEpoch < pr.Epoch {
				return kerr.InvalidProducerEpoch
			}
			if mk.CoordinatorEpoch < pr.CoordinatorEpoch {
				return kerr.TransactionCoordinatorFenced
			}
			pr.TxnStart = -1
		}
	}
	p.markers++
	return nil
}

func (m *model) transactions(req *kmsg.ListTransactionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	for _, id := range req.ProducerIDFilters {
		if name, ok := m.native[id]; ok {
			s := kmsg.NewListTransactionsResponseTransactionState()
			s.TransactionalID, s.ProducerID, s.TransactionState = name, id, "Ongoing"
			resp.TransactionStates = append(resp.TransactionStates, s)
		}
	}
	return resp
}

// count is how many requests of a key were asked.
func (m *model) count(key kmsg.Key) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[key.Int16()]
}

// check looks at every partition under the lock.
func (m *model) check(look func(i int, p *placed)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range m.parts {
		look(i, p)
	}
}

// promoter makes a Promoter of the model's cluster. Log lines are gathered in the returned text.
func (m *model) promoter(t *testing.T, lease func() error) (*Promoter, *logText) {
	t.Helper()
	c, err := kafka.Open(kafka.Config{
		Connection:     mirror.Connection{BootstrapServers: m.fake.ListenAddrs()},
		RequestTimeout: 3 * time.Second, DialTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	text := &logText{}
	return New(Deps{Destination: c, Lease: lease, Log: slog.New(slog.NewTextHandler(text, nil))}), text
}

func (m *model) targets() []mirror.Target {
	resolved := &mirror.Resolved{Definition: mirror.DefaultDefinition("east")}
	ts := make([]mirror.Target, len(m.parts))
	for i := range ts {
		ts[i] = mirror.Target{
			Partition: mirror.Partition{Mirror: "east", TopicID: mirror.TopicID{9}, Index: int32(i)},
			Topic:     m.topic, DestinationID: m.id, Mirror: resolved, State: mirror.Stopping,
		}
	}
	return ts
}

type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) lines(containing string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
