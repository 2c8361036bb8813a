package kafka

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// ConfigSource says where a setting's value comes from.
type ConfigSource int8

// The sources that matter here; every other one is a default of some kind.
const (
	SourceUnknown              ConfigSource = 0
	SourceTopic                ConfigSource = 1 // set on the topic itself
	SourceDynamicBroker        ConfigSource = 2 // set on this broker at run time
	SourceDynamicBrokerDefault ConfigSource = 3 // set for all brokers at run time
	SourceStaticBroker         ConfigSource = 4 // in the broker's file
	SourceDefault              ConfigSource = 5 // Kafka's default
)

// ConfigEntry is one setting.
type ConfigEntry struct {
	Key, Value string // Value is empty when Sensitive: brokers do not tell
	Source     ConfigSource
	Sensitive  bool
	ReadOnly   bool
}

// Explicit reports whether the value was set on the topic itself, so that it would have to be set on a copy.
func (e ConfigEntry) Explicit() bool { return e.Source == SourceTopic }

// Configs are the settings of one topic or broker by key, defaults included: a key that is not there is one that the
// cluster does not know.
type Configs struct {
	Entries map[string]ConfigEntry
	Err     error
}

// Explicit are the values that were set on the topic itself. Sensitive ones, of which there are none in stock Kafka, are
// left out.
func (cs Configs) Explicit() map[string]string {
	values := map[string]string{}
	for key, e := range cs.Entries {
		if e.Explicit() && !e.Sensitive {
			values[key] = e.Value
		}
	}
	return values
}

// Knows reports whether the cluster knows the key for topics (SPEC §8.8).
func (cs Configs) Knows(key string) bool {
	_, ok := cs.Entries[key]
	return ok
}

// TopicConfigs reads all settings of topics. A topic that does not exist has an Err that UnknownTopic recognises.
func (c *Cluster) TopicConfigs(ctx context.Context, topics ...string) map[string]Configs {
	all := make(map[string]Configs, len(topics))
	for chunk := range slices.Chunk(topics, configsPerRequest) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, name := range chunk {
			req.Resources = append(req.Resources, configResource(kmsg.ConfigResourceTypeTopic, name, nil))
			all[name] = Configs{Err: missing("read settings of topic " + name)}
		}
		c.describeConfigs(ctx, req, func(name string, cs Configs) { all[name] = cs })
	}
	return all
}

// BrokerConfigs reads settings of every broker that is alive: those with the given keys, or all. A key that a broker does
// not know is missing there.
func (c *Cluster) BrokerConfigs(ctx context.Context, keys ...string) (map[int32]Configs, error) {
	m, err := c.askMetadata(ctx, []string{})
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	all := make(map[int32]Configs, len(m.Brokers))
	for id := range m.Brokers {
		name := strconv.Itoa(int(id))
		req.Resources = append(req.Resources, configResource(kmsg.ConfigResourceTypeBroker, name, keys))
		all[id] = Configs{Err: missing("read settings of broker " + name)}
	}
	c.describeConfigs(ctx, req, func(name string, cs Configs) {
		if id, err := strconv.ParseInt(name, 10, 32); err == nil {
			all[int32(id)] = cs
		}
	})
	return all, nil
}

func configResource(of kmsg.ConfigResourceType, name string, keys []string) kmsg.DescribeConfigsRequestResource {
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = of, name, keys
	return r
}

func (c *Cluster) describeConfigs(ctx context.Context, req *kmsg.DescribeConfigsRequest, each func(string, Configs)) {
	shards(ctx, c, "read settings", req, func(req *kmsg.DescribeConfigsRequest, resp *kmsg.DescribeConfigsResponse, err error) {
		if err != nil {
			for _, r := range req.Resources {
				each(r.ResourceName, Configs{Err: err})
			}
			return
		}
		for _, r := range resp.Resources {
			each(r.ResourceName, readConfigs(r, resp.Version))
		}
	})
}

func readConfigs(r kmsg.DescribeConfigsResponseResource, version int16) Configs {
	if err := answerError("read settings of "+r.ResourceName, r.ErrorCode, r.ErrorMessage); err != nil {
		return Configs{Err: err}
	}
	cs := Configs{Entries: make(map[string]ConfigEntry, len(r.Configs))}
	for _, e := range r.Configs {
		source := ConfigSource(e.Source)
		if version == 0 && !e.IsDefault && r.ResourceType == kmsg.ConfigResourceTypeTopic {
			source = SourceTopic
		}
		cs.Entries[e.Name] = ConfigEntry{e.Name, deref(e.Value), source, e.IsSensitive, e.ReadOnly}
	}
	return cs
}

// ConfigChange sets and deletes settings of a topic; all other settings stay.
type ConfigChange struct {
	Topic  string
	Set    map[string]string
	Delete []string
}

// AlterTopicConfigs changes settings of topics, each topic's wholly or not at all, and at most one ConfigChange a topic.
// Topics that are not in the result are changed. Needs Kafka 2.3.
func (c *Cluster) AlterTopicConfigs(ctx context.Context, changes []ConfigChange) map[string]error {
	failed := map[string]error{}
	for chunk := range slices.Chunk(changes, configsPerRequest) {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for _, ch := range chunk {
			req.Resources = append(req.Resources, alterResource(ch))
			failed[ch.Topic] = missing("change settings of topic " + ch.Topic)
		}
		resp, err := effect[*kmsg.IncrementalAlterConfigsResponse](ctx, c, "change settings", req)
		if err != nil {
			for _, ch := range chunk {
				failed[ch.Topic] = err
			}
			continue
		}
		for _, r := range resp.Resources {
			failed[r.ResourceName] = answerError("change settings of topic "+r.ResourceName, r.ErrorCode, r.ErrorMessage)
		}
	}
	dropNil(failed)
	return failed
}

func alterResource(ch ConfigChange) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, ch.Topic
	add := func(key string, op kmsg.IncrementalAlterConfigOp, value *string) {
		e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		e.Name, e.Op, e.Value = key, op, value
		r.Configs = append(r.Configs, e)
	}
	for _, key := range slices.Sorted(maps.Keys(ch.Set)) {
		add(key, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(ch.Set[key]))
	}
	for _, key := range ch.Delete {
		add(key, kmsg.IncrementalAlterConfigOpDelete, nil)
	}
	return r
}

// KnownTopicConfigs lists the keys that the cluster knows for topics, read from a topic that exists.
func (c *Cluster) KnownTopicConfigs(ctx context.Context, topic string) (map[string]bool, error) {
	cs := c.TopicConfigs(ctx, topic)[topic]
	if cs.Err != nil {
		return nil, cs.Err
	}
	if len(cs.Entries) == 0 {
		return nil, mirror.Errorf(mirror.Refused, "read settings of topic %s: the broker tells none", topic).
			WithHint("grant the principal of mirrord DESCRIBE_CONFIGS on the topic")
	}
	known := make(map[string]bool, len(cs.Entries))
	for key := range cs.Entries {
		known[key] = true
	}
	return known, nil
}
