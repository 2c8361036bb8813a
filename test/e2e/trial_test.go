package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// monthOld are records of long ago, which any retention by time would delete.
func monthOld(topic string, n int) (records []*kgo.Record) {
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: []byte("theirs"), Timestamp: time.Now().Add(-30 * 24 * time.Hour)})
	}
	return records
}

// Topics of the same name on both sides that have nothing to do with one another, and a mirror of everything: what was on
// the destination keeps its records, its settings and its writers, through refusal, recover and stop (P5, protocol R20).
func TestAStrangersTopicIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	theirs := map[string][]string{
		"keep": {"retention.ms", "-1", "segment.ms", "1000", "message.timestamp.before.max.ms", never},
		"live": {
			"retention.ms", "600000", "retention.bytes", "1000000", "compression.type", "zstd", "message.timestamp.type", "LogAppendTime",
			"max.message.bytes", "2000000",
		},
	}
	own := map[string]map[string]string{}
	for topic, settings := range theirs {
		p.S.Topic(t, topic, 1, "cleanup.policy", "compact,delete", "retention.ms", "1000", "segment.ms", "1000", "max.compaction.lag.ms", "1000",
			"min.cleanable.dirty.ratio", "0.01", "max.message.bytes", "3000000")
		p.S.Send(t, nil, keyed(topic, 3)...)
		p.D.Topic(t, topic, 1, settings...)
		p.D.Send(t, nil, monthOld(topic, 5)...)
		set, err := p.D.Explicit(t.Context(), topic)
		must(t, err)
		own[topic] = set
		p.D.Grant(t, "ALLOW WRITE User:app TOPIC LITERAL "+topic)
	}
	m := NewDaemon(t, p.Mirror(".*"))
	m.Start()
	asItWas := func() {
		t.Helper()
		for topic, want := range own {
			Eventually(t, soon, func() error {
				got, err := p.D.Explicit(t.Context(), topic)
				if err == nil && !maps.Equal(got, want) {
					err = fmt.Errorf("%s has %v, want %v", topic, got, want)
				}
				return err
			})
			wantRights(t, p, "no DENY WRITE User:* TOPIC LITERAL "+topic)
			must(t, p.D.ProduceAs(App, topic))
		}
	}
	refused := func(times int) {
		t.Helper()
		Eventually(t, soon, func() error {
			if n := strings.Count(m.Log(), "topic given back"); n != times*len(own) {
				return fmt.Errorf("topics were given back %d times, want %d", n, times*len(own))
			}
			return nil
		})
		for topic := range own {
			row := awaitRow(t, m, topic, 0, soon, func(r Partition) bool { return r.State == "FAILED" })
			want(t, "attempt", row.RetryAttempt, -1)
		}
		asItWas()
	}
	refused(1)
	must(t, m.wantEvent("topic given back", "keep"))
	m.Do("recover", "--mirror", "east", "--topics", ".*", "--no-wait")
	refused(2)
	m.Do("stop", "--mirror", "east", "--topics", ".*")
	asItWas()
	m.refreshed(2)
	asItWas()
	for topic := range own {
		if n := p.D.records(t, topic); n < 5 {
			t.Errorf("%s holds %d records, and had 5", topic, n)
		}
	}
}

func keyed(topic string, n int) (records []*kgo.Record) {
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)})
	}
	return records
}
