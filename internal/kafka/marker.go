package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// legacyMarkers is the version of WriteTxnMarkers in which an equal producer epoch is taken (KIP-1228 came with 2).
const legacyMarkers = 1

// Marker ends a transaction in some partitions, whether or not one is open: one control record and one offset each.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool
	TPs              []TP
}

// MarkerKey names what the answer tells apart: all markers of one producer id in one partition have one outcome.
type MarkerKey struct {
	ProducerID int64
	TopicPartition
}

// WriteMarkers sends one request to one broker, which must lead all the partitions and writes the markers of a
// partition in the order given. Every key has an outcome in the result; nil: all its markers are written. The error is
// about the request as a whole. Nothing is repeated: markers are not idempotent (protocol R11), and after
// AfterAppendDoubt the log must be looked at.
func (c *Cluster) WriteMarkers(ctx context.Context, broker int32, markers []Marker) (map[MarkerKey]error, error) {
	conn, _, err := c.laneConn(ctx, laneKey{broker, laneWrite})
	if err != nil {
		return nil, requestError(ctx, "write markers", notSent(err))
	}
	if err := checkLease(ctx); err != nil {
		return nil, requestError(ctx, "write markers", err)
	}
	resp, err := conn.Send(markerRequest(conn, markers)).Wait(ctx)
	if err != nil {
		return nil, requestError(ctx, "write markers", err)
	}
	return markerOutcomes(markers, resp.(*kmsg.WriteTxnMarkersResponse)), nil
}

func markerRequest(conn *Conn, markers []Marker) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = max(legacyMarkers, conn.versions.min(req.Key())) // above it, transaction version 0 means the same
	for _, m := range markers {
		w := kmsg.NewWriteTxnMarkersRequestMarker()
		w.ProducerID, w.ProducerEpoch, w.CoordinatorEpoch, w.Committed = m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Commit
		for topic, tps := range byTopic(m.TPs) {
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic = topic
			for _, tp := range tps {
				t.Partitions = append(t.Partitions, tp.Partition)
			}
			w.Topics = append(w.Topics, t)
		}
		req.Markers = append(req.Markers, w)
	}
	return req
}

func markerOutcomes(markers []Marker, resp *kmsg.WriteTxnMarkersResponse) map[MarkerKey]error {
	outcomes := map[MarkerKey]error{}
	for _, m := range markers {
		for _, tp := range m.TPs {
			outcomes[MarkerKey{m.ProducerID, tp.Name()}] = missing("write marker to " + tp.String())
		}
	}
	seen := map[MarkerKey]bool{}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				key := MarkerKey{m.ProducerID, TopicPartition{t.Topic, p.Partition}}
				err := answerError("write marker to "+key.String(), p.ErrorCode, nil)
				if !seen[key] || err != nil { // if the broker tells several, the worst counts
					outcomes[key] = err
				}
				seen[key] = true
			}
		}
	}
	return outcomes
}
