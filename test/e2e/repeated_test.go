package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The coordinator repeats the marker that fills the last offset before a record. The record cannot be stored at its
// offset any more: the partition fails and says so, no more than the batch that shows it is stored behind the marker, and copying the topic again puts
// it right. The storm has to tell this from a filler too many.
func TestR12_RepeatedMarkerFailsThePartition(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "repeated", 1)
	p.S.Send(t, nil, Numbered("repeated", 0, 0, 10)...)
	newTxns(t, p.S).run(t, "repeated", 0, 1, false)
	s := p.Mirror("repeated")
	s.MirrorExtra = []string{"fillers: transactions", "transactions: committed"}
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "repeated")
	storm := &drama{Story: Story{Fillers: "transactions"}, Pair: p, daemons: []*Daemon{m}, topics: []string{"repeated"}}
	p.D.counted(t, "repeated", 4, 4)

	end := p.D.repeatMarker(t, "repeated")
	p.D.counted(t, "repeated", 5, 4)
	p.S.Send(t, nil, Numbered("repeated", 0, 10, 10)...)
	m.failed("repeated", end, "--reseed")
	if !storm.repeated(t, "repeated") {
		t.Error("the storm takes the marker for one of the mirror's own")
	}
	if batches := batchesFrom(t, p.D, "repeated", end+1); len(batches) > 1 {
		t.Errorf("%d batches lie behind the repeated marker; want at most the one that shows it", len(batches))
	}
	storm.level(t)
	Identical(t, p.S, p.D, "repeated")
}

// counted demands so many abort markers and so many transactions over a topic.
func (c *Cluster) counted(t *testing.T, topic string, markers, transactions int) {
	t.Helper()
	got, err := c.abortMarkers(topic)
	must(t, err)
	want(t, "abort markers", got, markers)
	got, err = c.transactionsEnded(topic)
	must(t, err)
	want(t, "transactions", got, transactions)
}

// repeatMarker writes the last marker of a topic once more, as its coordinator would, and gives its offset.
func (c *Cluster) repeatMarker(t *testing.T, topic string) (offset int64) {
	t.Helper()
	var last *kgo.Record
	must(t, c.everything(topic, func(r *kgo.Record) error { last = r; return nil }))
	leader, err := c.Leader(context.Background(), topic, 0)
	must(t, err)
	marker := kmsg.NewWriteTxnMarkersRequestMarker()
	marker.ProducerID, marker.ProducerEpoch = last.ProducerID, last.ProducerEpoch
	marker.CoordinatorEpoch = int32(binary.BigEndian.Uint32(last.Value[2:]))
	marker.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{0}}}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{marker}
	resp, err := c.cl.Broker(int(leader)).Request(context.Background(), req)
	must(t, err)
	for _, m := range resp.(*kmsg.WriteTxnMarkersResponse).Markers {
		err = errors.Join(err, kerr.ErrorForCode(m.Topics[0].Partitions[0].ErrorCode))
	}
	must(t, err)
	return last.Offset + 1
}
