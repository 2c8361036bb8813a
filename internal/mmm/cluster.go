package mmm

import (
	"context"
	"crypto/sha256"
	"fmt"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// clusterVerdict is what the id of the cluster that answered means for a mirror.
type clusterVerdict struct {
	learnt  string // what LearntClusterID becomes
	Finding statestore.Finding
}

// judgeCluster compares the cluster that answered at the source's address with what a mirror expects. An id that the
// operator configured counts more than one that was learnt: that is how another cluster is accepted.
func judgeCluster(m statestore.Mirror, id, destinationID string) clusterVerdict {
	v := clusterVerdict{learnt: m.LearntClusterID}
	want := m.LearntClusterID
	if m.SourceClusterID != "" {
		want = m.SourceClusterID
	}
	switch {
	case id == "":
	case id == destinationID:
		v.Finding = statestore.Finding{
			Kind:    mirror.Loop,
			Message: fmt.Sprintf("source and destination are one and the same cluster %s: the mirror is refused", id),
		}
	case want != "" && id != want:
		v.Finding = statestore.Finding{Kind: mirror.SourceChanged, Message: mirror.OtherCluster(id, want).Error()}
	default:
		v.learnt = id
	}
	return v
}

// nameless gives ids to the topics of a cluster that has none (before Kafka 2.8): made of cluster and name, so that they
// stay the same and no two topics share the key of their partitions.
func nameless(topics catalog, clusterID string) {
	for name, t := range topics {
		if t.id.IsZero() && t.err == nil {
			t.id = namedID(clusterID, name)
			topics[name] = t
		}
	}
}

func namedID(clusterID, topic string) mirror.TopicID {
	h := sha256.Sum256([]byte(clusterID + "\x00" + topic))
	return mirror.TopicID(h[:16])
}

// keyVerification is the setting that must be off, or unknown, on every broker that is to take foreign transactions.
const keyVerification = "transaction.partition.verification.enable"

// capabilities is what the destination admits, as far as modes depend on it.
type capabilities struct {
	markers bool  // WriteTxnMarkers is allowed
	foreign bool  // transactional batches of producers that the cluster did not register are taken
	untold  error // why that is not known of a broker; it may refuse them, then
}

// decideModes makes the choices that a definition leaves open. What was decided once stays, as long as the definition
// leaves it open.
func decideModes(m statestore.Mirror, can capabilities) (transactions, fillers string) {
	fillers = m.Fillers
	if fillers == mirror.Auto || fillers == "" {
		fillers = m.FillersMode
		if fillers == "" {
			fillers = mirror.Transactions
			if can.markers {
				fillers = mirror.Markers
			}
		}
	}
	transactions = m.Transactions
	if transactions == mirror.Auto || transactions == "" {
		transactions = m.TransactionsMode
		if transactions == "" && can.foreign {
			transactions = mirror.Exact
		}
		if transactions == "" || fillers != mirror.Markers { // exact needs markers (protocol R14)
			transactions = mirror.Committed
		}
	}
	return transactions, fillers
}

// undecided reports whether a choice is open for which the destination must be asked.
func undecided(m statestore.Mirror) bool {
	return m.Transactions == mirror.Auto && m.TransactionsMode == "" || m.Fillers == mirror.Auto && m.FillersMode == ""
}

// askCapabilities asks the destination.
func askCapabilities(ctx context.Context, dst *kafka.Cluster) (can capabilities, err error) {
	ops, err := dst.ClusterOperations(ctx)
	if err != nil {
		return can, fmt.Errorf("ask what mirrord may do on the destination: %w", err)
	}
	brokers, err := dst.BrokerConfigs(ctx, keyVerification)
	if err != nil {
		return can, fmt.Errorf("read settings of the destination's brokers: %w", err)
	}
	can = capabilities{markers: ops.MayWriteMarkers(), foreign: len(brokers) > 0}
	for _, cs := range brokers {
		switch {
		case cs.Err != nil && mirror.KindOf(cs.Err) != mirror.Refused:
			return can, cs.Err // the choice is made once: not on a passing failure
		case cs.Err != nil:
			can.foreign, can.untold = false, cs.Err
		}
		if e, ok := cs.Entries[keyVerification]; ok && e.Value != "false" {
			can.foreign = false
		}
	}
	return can, nil
}
