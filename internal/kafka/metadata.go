package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

const (
	minMetadataAge = 250 * time.Millisecond // of franz-go's own refreshes after an error
	metadataChunk  = 1000                   // topics in one request
)

// Metadata is what the cluster said about itself at one moment. It is never changed after it was made.
type Metadata struct {
	ClusterID  string
	Controller int32 // −1: none known
	Brokers    map[int32]Broker
	Topics     map[string]Topic
}

// Broker is a broker that is alive.
type Broker struct {
	ID   int32
	Host string
	Port int32
	Rack string
}

// Address is host:port, as advertised.
func (b Broker) Address() string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }

// Topic is a topic. Err is classified; a topic that does not exist has one that UnknownTopic recognises.
type Topic struct {
	Name       string
	ID         mirror.TopicID // zero before Kafka 2.8
	Err        error
	Internal   bool
	Partitions []Partition // sorted by index
}

// Partition finds a partition by its index.
func (t Topic) Partition(index int32) (Partition, bool) {
	i, ok := slices.BinarySearchFunc(t.Partitions, index, func(p Partition, i int32) int { return cmp.Compare(p.Index, i) })
	if !ok {
		return Partition{}, false
	}
	return t.Partitions[i], true
}

// Partition says who serves a partition. Leader is −1 while there is none, LeaderEpoch −1 where unknown.
type Partition struct {
	Index, Leader, LeaderEpoch int32
	Replicas, ISR              []int32
	Err                        error
}

// TP names a partition for batched reads. It is the key of their results, as it was asked.
type TP struct {
	Topic       string
	TopicID     mirror.TopicID // zero: by name
	Partition   int32
	LeaderEpoch int32 // what the caller believes; the broker refuses another one; −1: don't check
}

// String is topic-partition.
func (t TP) String() string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) }

func (t TP) topic() string { return t.Topic }

// Metadata asks the cluster now, past every cache, and never creates a topic. No topics given: all of them. Topics that
// do not exist are in the answer, with their error.
func (c *Cluster) Metadata(ctx context.Context, topics ...string) (Metadata, error) {
	if len(topics) == 0 {
		return c.askMetadata(ctx, nil)
	}
	var all Metadata
	for chunk := range slices.Chunk(topics, metadataChunk) {
		m, err := c.askMetadata(ctx, chunk)
		if err != nil {
			return Metadata{}, err
		}
		if all.Topics == nil {
			all = m
			continue
		}
		all.ClusterID, all.Controller, all.Brokers = m.ClusterID, m.Controller, m.Brokers
		maps.Copy(all.Topics, m.Topics)
	}
	return all, nil
}

// askMetadata asks once: nil means all topics, an empty list none.
func (c *Cluster) askMetadata(ctx context.Context, topics []string) (Metadata, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if topics != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(topics))
	}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return Metadata{}, c.ended(requestError(ctx, "ask for metadata", err))
	}
	m := readMetadata(resp)
	c.remember(m, topics == nil)
	return m, nil
}

func readMetadata(resp *kmsg.MetadataResponse) Metadata {
	m := Metadata{
		Controller: resp.ControllerID, Brokers: make(map[int32]Broker, len(resp.Brokers)),
		Topics: make(map[string]Topic, len(resp.Topics)),
	}
	if resp.ClusterID != nil {
		m.ClusterID = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		m.Brokers[b.NodeID] = Broker{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: deref(b.Rack)}
	}
	for _, t := range resp.Topics {
		m.Topics[deref(t.Topic)] = readTopic(t)
	}
	return m
}

func readTopic(t kmsg.MetadataResponseTopic) Topic {
	topic := Topic{
		Name: deref(t.Topic), ID: t.TopicID, Err: kafkaErrorOf("metadata", t.ErrorCode, nil), Internal: t.IsInternal,
		Partitions: make([]Partition, 0, len(t.Partitions)),
	}
	for _, p := range t.Partitions {
		part := Partition{Index: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR}
		if p.ErrorCode != kerr.ReplicaNotAvailable.Code { // a replica that is down does not make the leader unusable
			part.Err = kafkaError(p.ErrorCode, nil)
		}
		topic.Partitions = append(topic.Partitions, part)
	}
	slices.SortFunc(topic.Partitions, func(a, b Partition) int { return cmp.Compare(a.Index, b.Index) })
	return topic
}

// remember keeps addresses and leaders. Brokers are only added: one that just left is still tried, and fails then.
func (c *Cluster) remember(m Metadata, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.brokers, m.Brokers)
	if all {
		c.topics = map[string]Topic{}
	}
	maps.Copy(c.topics, m.Topics)
}

// Broker gives the address of a broker as last seen in metadata.
func (c *Cluster) Broker(id int32) (Broker, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.brokers[id]
	return b, ok
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
