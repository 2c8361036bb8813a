package kafka

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// How many names one request carries. Brokers have no limit below a million, but answer a request in one piece.
const (
	configsPerRequest = 500  // a topic's settings are about 3 KiB
	namesPerRequest   = 1000 // groups, ACLs, partitions
)

// TopicPartition names a partition where only its name counts.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is topic-partition.
func (t TopicPartition) String() string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) }

func (t TopicPartition) topic() string { return t.Topic }

// Name is the partition's name alone.
func (t TP) Name() TopicPartition { return TopicPartition{t.Topic, t.Partition} }

type leaseKey struct{}

// WithLease makes every effect that is sent under the context ask lease right before it leaves (protocol R16). Its
// error is returned in place of the effect, which then has not happened. Reads do not ask.
func WithLease(ctx context.Context, lease func() error) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

func checkLease(ctx context.Context) error {
	lease, ok := ctx.Value(leaseKey{}).(func() error)
	if !ok || lease == nil {
		return nil
	}
	if err := lease(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return nil
}

// readPatience is how many request timeouts a read may take, repetitions included: a cluster that is away must not hold up
// a refresh step by step.
const readPatience = 2

// ask sends a request that only reads. The client repeats it while that can help.
func ask[A kmsg.Response](ctx context.Context, c *Cluster, op string, req kmsg.Request) (answer A, err error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience*c.cfg.RequestTimeout)
	defer cancel()
	resp, err := c.client.Request(ctx, req)
	if err != nil {
		return answer, c.ended(adminError(ctx, op, err))
	}
	return resp.(A), nil
}

// effect sends a request that changes the cluster. It leaves at most one request timeout after the lease was checked.
func effect[A kmsg.Response](ctx context.Context, c *Cluster, op string, req kmsg.Request) (answer A, err error) {
	if err := checkLease(ctx); err != nil {
		return answer, adminError(ctx, op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	return ask[A](ctx, c, op, req)
}

// shards sends a request that is split by leader, coordinator or broker, and hands over each part with its answer or
// its error.
func shards[Q kmsg.Request, A kmsg.Response](ctx context.Context, c *Cluster, op string, req Q, each func(Q, A, error)) {
	ctx, cancel := context.WithTimeout(ctx, readPatience*c.cfg.RequestTimeout)
	defer cancel()
	for _, s := range c.client.RequestSharded(ctx, req) {
		var answer A
		if s.Err == nil {
			answer = s.Resp.(A)
		}
		each(s.Req.(Q), answer, adminError(ctx, op, s.Err))
	}
}

// effectShards is shards for requests that change the cluster.
func effectShards[Q kmsg.Request, A kmsg.Response](ctx context.Context, c *Cluster, op string, req Q, each func(Q, A, error)) {
	if err := checkLease(ctx); err != nil {
		var none A
		each(req, none, adminError(ctx, op, err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	shards(ctx, c, op, req, each)
}

// brokerMillis is what a broker may take for an effect, so that its answer comes before effect gives up.
func (c *Cluster) brokerMillis() int32 {
	return int32((c.cfg.RequestTimeout - c.cfg.RequestTimeout/5) / time.Millisecond)
}

// tooOld are the texts with which franz-go refuses to send what the broker does not serve; it exports no values for them.
var tooOld = []string{"broker is too old", "request key is unknown"}

// adminError is requestError that also recognises requests which the broker does not serve (see UnsupportedVersion).
func adminError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	for _, text := range tooOld {
		if strings.Contains(err.Error(), text) {
			return mirror.Errorf(mirror.Refused, "%s: %w", op, errUnsupported)
		}
	}
	return requestError(ctx, op, err)
}

// answerError is the error of one item of an answer, nil for code 0.
func answerError(op string, code int16, message *string) error {
	if err := kafkaErrorOf(op, code, message); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
