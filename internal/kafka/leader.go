package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrord/internal/mirror"
)

// located is a partition with the leader that is to be asked. epoch is the caller's leader epoch, else metadata's.
type located struct {
	TP
	leader, epoch int32
}

// ledRequest asks the leaders of partitions: one request per broker and chunk, brokers side by side.
type ledRequest[R any] struct {
	chunk int // partitions in one request
	fresh bool
	// ask fills out for every partition of one broker. It runs concurrently for different brokers.
	ask func(ctx context.Context, broker int32, tps []located, out func(TP, R))
	// fail makes a result of an error; failure reads it back.
	fail    func(error) R
	failure func(R) error
}

// askLeaders returns a result for every partition. Where the leader turned out to be another one, metadata is asked for
// and the partition once more: reads only.
func askLeaders[R any](ctx context.Context, c *Cluster, tps []TP, q ledRequest[R]) map[TP]R {
	results := make(map[TP]R, len(tps))
	lost := func(tp TP, err error) { results[tp] = q.fail(err) }
	first := c.locate(ctx, tps, q.fresh, lost)
	askRound(ctx, first, q, results)
	again := slices.DeleteFunc(slices.Clone(tps), func(tp TP) bool { return !worthAnotherLook(tp, q.failure(results[tp])) })
	if len(again) == 0 || ctx.Err() != nil {
		return results
	}
	second := c.locate(ctx, again, true, lost)
	for broker, silent := range first { // a broker that does not answer is not waited for twice
		second[broker] = slices.DeleteFunc(second[broker], func(tp located) bool {
			err := q.failure(results[tp.TP])
			return isNetwork(err) && slices.ContainsFunc(silent, func(l located) bool { return l.TP == tp.TP })
		})
	}
	askRound(ctx, second, q, results)
	return results
}

// worthAnotherLook: another broker may answer. An epoch that the caller insists on is not replaced behind its back.
func worthAnotherLook(tp TP, err error) bool {
	if FencedLeaderEpoch(err) {
		return tp.LeaderEpoch < 0
	}
	return NotLeader(err) || UnknownTopic(err) || errors.Is(err, ErrClosed) || Classify(err) == mirror.Unreachable && err != nil
}

func askRound[R any](ctx context.Context, found map[int32][]located, q ledRequest[R], results map[TP]R) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for broker, tps := range found {
		wg.Go(func() {
			for chunk := range slices.Chunk(tps, q.chunk) {
				answered := make(map[TP]struct{}, len(chunk))
				q.ask(ctx, broker, chunk, func(tp TP, r R) {
					mu.Lock()
					defer mu.Unlock()
					results[tp] = r
					answered[tp] = struct{}{}
				})
				mu.Lock()
				for _, tp := range chunk {
					if _, ok := answered[tp.TP]; !ok {
						results[tp.TP] = q.fail(fmt.Errorf("%s: %w", tp.TP, ErrMissing))
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// locate finds leaders by what was seen last, or by asking now. What cannot be located is handed to lost.
func (c *Cluster) locate(ctx context.Context, tps []TP, ask bool, lost func(TP, error)) map[int32][]located {
	var asked error
	if topics := c.topicsToAsk(tps, ask); len(topics) > 0 {
		_, asked = c.Metadata(ctx, topics...)
	}
	found := map[int32][]located{}
	for _, tp := range tps {
		l, err := c.leaderFor(tp)
		if asked != nil && (err != nil || ask) {
			err = asked
		}
		if err != nil {
			lost(tp, err)
			continue
		}
		found[l.leader] = append(found[l.leader], l)
	}
	return found
}

func (c *Cluster) topicsToAsk(tps []TP, all bool) []string {
	topics := map[string]struct{}{}
	for _, tp := range tps {
		if _, err := c.leaderFor(tp); all || err != nil {
			topics[tp.Topic] = struct{}{}
		}
	}
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	return names
}

// leaderFor looks into what metadata said last. A topic of another id is another topic (protocol R9).
func (c *Cluster) leaderFor(tp TP) (located, error) {
	c.mu.Lock()
	topic, seen := c.topics[tp.Topic]
	c.mu.Unlock()
	part, ok := topic.Partition(tp.Partition)
	switch {
	case topic.Err != nil:
		return located{}, fmt.Errorf("%s: %w", tp, topic.Err)
	case !seen || !ok:
		return located{}, fmt.Errorf("%s: %w", tp, kafkaError(kerr.UnknownTopicOrPartition.Code, nil))
	case !tp.TopicID.IsZero() && topic.ID != tp.TopicID:
		return located{}, fmt.Errorf("%s: %w", tp, kafkaError(kerr.UnknownTopicID.Code, nil))
	case part.Leader < 0:
		return located{}, fmt.Errorf("%s: %w", tp, kafkaError(kerr.LeaderNotAvailable.Code, nil))
	}
	l := located{tp, part.Leader, tp.LeaderEpoch}
	if l.epoch < 0 {
		l.epoch = part.LeaderEpoch
	}
	return l, nil
}

// indexLed finds a partition of an answer again.
func indexLed(tps []located) map[TopicPartition]TP {
	index := make(map[TopicPartition]TP, len(tps))
	for _, tp := range tps {
		index[tp.Name()] = tp.TP
	}
	return index
}
