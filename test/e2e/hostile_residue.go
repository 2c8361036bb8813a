package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// level waits until all topics of a story are level. One thing may come in between: a cluster's coordinator may repeat
// the marker of an empty transaction when a leader dies (protocol R12). Where it provably has, the partition has to be
// FAILED, and copying its topic again has to put it right.
func (d *drama) level(t *testing.T) {
	t.Helper()
	again := map[string]bool{}
	Eventually(t, 90*time.Second, func() error {
		for _, topic := range d.topics {
			err := Level(context.Background(), d.S, d.D, topic)
			if err == nil {
				continue
			}
			if again[topic] || !d.repeated(t, topic) {
				return err
			}
			again[topic] = true
			d.daemons[0].Do("recover", "--mirror", "east", "--topics", topic, "--reseed")
			return fmt.Errorf("%s has been copied again", topic)
		}
		return nil
	})
}

// repeated tells of a FAILED partition whether its log holds more markers of transactions than there were transactions.
func (d *drama) repeated(t *testing.T, topic string) bool {
	t.Helper()
	if d.Fillers != "transactions" {
		return false
	}
	p, err := d.daemons[0].Partition(topic, 0)
	if err != nil || p.State != "FAILED" {
		return false
	}
	markers, err := d.D.abortMarkers(topic)
	must(t, err)
	ended, err := d.D.transactionsEnded(topic)
	must(t, err)
	if markers > ended {
		t.Logf("%s: %s: %d abort markers of %d transactions", topic, p.ErrorMessage, markers, ended)
	}
	return markers > ended
}

// abortMarkers counts the markers that the cluster's own coordinators have written into partition 0.
func (c *Cluster) abortMarkers(topic string) (n int, err error) {
	err = c.everything(topic, func(r *kgo.Record) error {
		if r.Attrs.IsControl() && r.ProducerID < mirrored && len(r.Key) == 4 && binary.BigEndian.Uint16(r.Key[2:]) == 0 {
			n++
		}
		return nil
	})
	return n, err
}

// mirrored is the first producer id that no coordinator has given away.
const mirrored = 1 << 61

// transactionsEnded counts the transactions over partition 0 of a topic whose end the coordinators have recorded. The name
// must never have been another topic's.
func (c *Cluster) transactionsEnded(topic string) (n int, err error) {
	const prepareCommit, prepareAbort = 2, 3
	err = c.everything("__transaction_state", func(r *kgo.Record) error {
		var txn kmsg.TxnMetadataValue
		if r.Value == nil || r.Attrs.IsControl() {
			return nil
		}
		if err := txn.ReadFrom(r.Value); err != nil {
			return fmt.Errorf("__transaction_state: %w", err)
		}
		if txn.State != prepareCommit && txn.State != prepareAbort {
			return nil
		}
		for _, t := range txn.Topics {
			if t.Topic == topic {
				n++
			}
		}
		return nil
	})
	return n, err
}

// everything calls f for all that a topic's logs hold, control records included.
func (c *Cluster) everything(topic string, f func(*kgo.Record) error) error {
	logs, err := c.Logs(context.Background(), topic)
	if err != nil {
		return err
	}
	for p, log := range logs {
		r := newReader(c, topic, p, log)
		r.uncommitted, r.end = true, log.End
		for {
			rec, err := r.next()
			if err != nil {
				return err
			}
			if rec == nil {
				break
			}
			if err := f(rec); err != nil {
				return err
			}
		}
	}
	return nil
}
