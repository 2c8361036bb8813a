package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// topicsPerCreate and partitionsPerCreate bound one CreateTopics request: a controller refuses an operation of more than
// 10,000 metadata records.
const (
	topicsPerCreate     = 200
	partitionsPerCreate = 5000
)

// TopicSpec is a topic to be created.
type TopicSpec struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16             // −1: the cluster's default
	Configs           map[string]string // valid before the first record can arrive
}

// CreatedTopic is the outcome for one TopicSpec.
type CreatedTopic struct {
	ID  mirror.TopicID // zero before Kafka 2.8
	Err error          // the broker's reason; TopicExists, Authorization, PolicyViolation recognise some
}

// CreateTopic creates one topic.
func (c *Cluster) CreateTopic(ctx context.Context, spec TopicSpec) (mirror.TopicID, error) {
	created := c.CreateTopics(ctx, []TopicSpec{spec})[0]
	return created.ID, created.Err
}

// CreateTopics creates topics, many in a request; the results stand in the order of specs. One refusal does not hinder the
// others. A topic of which no answer came may exist or come into being yet.
func (c *Cluster) CreateTopics(ctx context.Context, specs []TopicSpec) []CreatedTopic {
	created := make([]CreatedTopic, 0, len(specs))
	for len(specs) > 0 {
		n := createChunk(specs)
		created = append(created, c.createTopics(ctx, specs[:n])...)
		specs = specs[n:]
	}
	return created
}

// createChunk is how many of the first specs fit into one request, at least one.
func createChunk(specs []TopicSpec) int {
	partitions := int32(0)
	for i, s := range specs {
		partitions += s.Partitions
		if i > 0 && (i == topicsPerCreate || partitions > partitionsPerCreate) {
			return i
		}
	}
	return len(specs)
}

func (c *Cluster) createTopics(ctx context.Context, specs []TopicSpec) []CreatedTopic {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = c.brokerMillis()
	for _, s := range specs {
		req.Topics = append(req.Topics, createRequest(s))
	}
	created := make([]CreatedTopic, len(specs))
	resp, err := effect[*kmsg.CreateTopicsResponse](ctx, c, "create topic", req)
	answers := map[string]CreatedTopic{}
	if err == nil {
		for _, t := range resp.Topics {
			answers[t.Topic] = CreatedTopic{t.TopicID, answerError("create topic "+t.Topic, t.ErrorCode, t.ErrorMessage)}
		}
	}
	for i, s := range specs {
		answer, ok := answers[s.Name]
		switch {
		case err != nil:
			answer.Err = err
		case !ok:
			answer.Err = missing("create topic " + s.Name)
		}
		created[i] = answer
	}
	return created
}

func createRequest(s TopicSpec) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = s.Name, s.Partitions, s.ReplicationFactor
	for _, key := range slices.Sorted(maps.Keys(s.Configs)) {
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = key, kmsg.StringPtr(s.Configs[key])
		t.Configs = append(t.Configs, cfg)
	}
	return t
}

// CreatePartitions grows topics to the given total numbers of partitions. Topics that are not in the result have grown.
func (c *Cluster) CreatePartitions(ctx context.Context, totals map[string]int32) map[string]error {
	failed := map[string]error{}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(totals)), topicsPerCreate) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = c.brokerMillis()
		for _, name := range chunk {
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = name, totals[name]
			req.Topics = append(req.Topics, t)
			failed[name] = missing("grow topic " + name)
		}
		resp, err := effect[*kmsg.CreatePartitionsResponse](ctx, c, "grow topics", req)
		if err != nil {
			setAll(failed, chunk, err)
			continue
		}
		for _, t := range resp.Topics {
			failed[t.Topic] = answerError("grow topic "+t.Topic, t.ErrorCode, t.ErrorMessage)
		}
	}
	dropNil(failed)
	return failed
}

// DeleteTopic deletes the topic with that id and no other: a topic of the same name that was created since stays. Needs
// Kafka 2.8 (UnsupportedVersion before). name is for the message only.
func (c *Cluster) DeleteTopic(ctx context.Context, name string, id mirror.TopicID) error {
	op := "delete topic " + name
	if id.IsZero() {
		return mirror.Errorf(mirror.Refused, "%s: its topic id is not known", op)
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = c.brokerMillis()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID = id
	req.Topics = []kmsg.DeleteTopicsRequestTopic{t}
	resp, err := effect[*kmsg.DeleteTopicsResponse](ctx, c, op, req)
	switch {
	case err != nil:
		return err
	case resp.Version < 6: // by name only; none was sent, so nothing was deleted
		return mirror.Errorf(mirror.Refused, "%s by its id: %w", op, errUnsupported)
	case len(resp.Topics) == 0:
		return missing(op)
	}
	return answerError(op, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
}

// missing is for an item that the broker left out of its answer.
func missing(op string) error { return mirror.Errorf(mirror.Retriable, "%s: %w", op, ErrMissing) }

func setAll[K comparable](into map[K]error, keys []K, err error) {
	for _, k := range keys {
		into[k] = err
	}
}

func dropNil[K comparable](m map[K]error) {
	maps.DeleteFunc(m, func(_ K, err error) bool { return err == nil })
}
