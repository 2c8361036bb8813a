package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Somebody else writes into mirror partitions: one that is idle, one that is written next, and one under load. Each fails
// alone, says where and who, and is counted; what was in flight then is all of ours that lies beyond (protocol R21).
func TestR21_StrangersAreFoundAndNamed(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	const before = 20
	topics := []string{"idle", "anonymous", "next", "busy"}
	for _, topic := range topics {
		p.S.Topic(t, topic, 2)
		for i := range int32(2) {
			p.S.Send(t, nil, Numbered(topic, i, 0, before)...)
		}
	}
	m := NewDaemon(t, p.Mirror(topics...))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, topics...)
	load := StartLoad(t, p.S, 2000, 2, "busy")
	progress(t, p, "busy", 2, soon)
	stranger := p.D.Producer(t)
	defer stranger.Close()
	nameless := p.D.Producer(t, kgo.DisableIdempotentWrite())
	defer nameless.Close()
	at := map[string]int64{}
	for topic, cl := range map[string]*kgo.Client{"idle": stranger, "anonymous": nameless, "next": stranger, "busy": stranger} {
		foreign := &kgo.Record{Topic: topic, Value: []byte("foreign")}
		must(t, cl.ProduceSync(context.Background(), foreign).FirstErr())
		at[topic] = foreign.Offset
	}
	p.S.Send(t, nil, Numbered("next", 0, before, 1)...)
	id, epoch, err := stranger.ProducerID(context.Background())
	must(t, err)
	for _, topic := range topics {
		who := fmt.Sprintf("producer id %d, epoch %d", id, epoch)
		if topic == "anonymous" {
			who = "a producer without an id"
		}
		m.strangerIn(topic, fmt.Sprintf("(offset %d: %s)", at[topic], who))
	}
	progressOf(t, p, "busy", 1)
	load.Stop(t)
	for topic, most := range map[string]int64{"idle": 0, "anonymous": 0, "next": 1, "busy": 5} {
		p.S.Send(t, nil, append(Numbered(topic, 0, 5000, 5), Numbered(topic, 1, 5000, 5)...)...)
		Eventually(t, soon, func() error { return sameEnd(p, topic, 1) })
		if batches := batchesFrom(t, p.D, topic, at[topic]+1); int64(len(batches)) > most {
			t.Errorf("%s: %d batches lie behind the stranger's, want at most %d", topic, len(batches), most)
		}
	}
	m.Do("stop", "--mirror", "east", "--topics", ".*")
}

// strangerIn waits until partition 0 of a topic is FAILED for good, with words of its message, and counted; partition 1 is not.
func (d *Daemon) strangerIn(topic, words string) {
	d.t.Helper()
	Eventually(d.t, soon, func() error {
		if err := d.wantState(topic, 0, "FAILED", words); err != nil {
			return err
		}
		return d.wantState(topic, 1, "MIRRORING", "")
	})
	if n := d.Metric("mirrord_foreign_writes_total", fmt.Sprintf("topic=%q", topic)); n != 1 {
		d.t.Errorf("%s: %v foreign writes were counted", topic, n)
	}
	if row, err := d.Partition(topic, 0); err != nil || row.RetryAttempt != -1 {
		d.t.Errorf("%s is to be retried: %+v, %v", topic, row, err)
	}
}

// progressOf waits until a partition of the destination has passed where the source stands now.
func progressOf(t *testing.T, p Pair, topic string, partition int32) {
	t.Helper()
	at, err := p.S.Logs(context.Background(), topic)
	must(t, err)
	Eventually(t, 30*time.Second, func() error {
		now, err := p.D.Logs(context.Background(), topic)
		if err == nil && now[partition].End < at[partition].End {
			err = fmt.Errorf("%s-%d is at %d, the source was at %d", topic, partition, now[partition].End, at[partition].End)
		}
		return err
	})
}

// sameEnd demands equal log ends of a partition.
func sameEnd(p Pair, topic string, partition int32) error {
	logs, err := p.S.Logs(context.Background(), topic)
	if err != nil {
		return err
	}
	return p.D.wantEnd(topic, partition, logs[partition].End)
}
