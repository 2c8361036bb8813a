package statestore

import (
	"fmt"

	"mirrord/internal/mirror"
)

// Record types of __mirror_state. 1 and 2 are KIP-1279's, the others mirrord's own. Append only.
const (
	typeLastMirrorEpoch int16 = 1
	typePartitionState  int16 = 2
	typeMirror          int16 = 100
	typeTopic           int16 = 101
	typeShardClaim      int16 = 102
	typeCommandOutcome  int16 = 103
	typeCommandCursor   int16 = 104
	typeShardReport     int16 = 105
	typeOwnedACL        int16 = 106
	typeGroupStatus     int16 = 107
	typeTopicSettings   int16 = 108
	typeClusterIdentity int16 = 109
	typeSourceEpochs    int16 = 110
	typeRefreshStatus   int16 = 111
)

func partitionKey(c *coder, p *mirror.Partition) {
	c.keyString(&p.Mirror)
	c.topicID(&p.TopicID)
	c.int32(&p.Index)
}

func (r *LastMirrorEpoch) keyFields(c *coder) { partitionKey(c, &r.Partition) }

func (r *LastMirrorEpoch) valueFields(c *coder) {
	if c.decoding() {
		r.Position.Offset = -1
	}
	c.int32(&r.Position.LeaderEpoch)
	c.tags(tag{0, r.Position.Offset >= 0, func(c *coder) { c.int64(&r.Position.Offset) }})
}

func (r *PartitionState) keyFields(c *coder) { partitionKey(c, &r.Partition) }

func (r *PartitionState) valueFields(c *coder) {
	if c.decoding() {
		r.LeaderEpoch = -1
	}
	index := r.Index
	c.string(&r.Topic)
	if c.int32(&index); index != r.Index {
		c.err = fmt.Errorf("partition %d in the key, %d in the value", r.Index, index)
	}
	c.state(&r.State)
	c.state(&r.Previous)
	c.int16(&r.RetryAttempt)
	c.tags(
		tag{0, r.ErrorMessage != "", func(c *coder) { c.nullableString(&r.ErrorMessage) }},
		tag{1, true, func(c *coder) { c.int32(&r.StateEpoch) }},
		tag{2, true, func(c *coder) { c.int32(&r.LeaderEpoch) }},
		tag{100, r.Rearmed != 0, func(c *coder) { c.int32(&r.Rearmed) }},
		tag{101, r.Kind != 0, func(c *coder) { c.kind(&r.Kind) }},
		tag{102, r.Compared != 0, func(c *coder) { c.int64(&r.Compared) }},
	)
}

func (r *Mirror) keyFields(c *coder) { c.keyString(&r.Name) }

func (r *Mirror) valueFields(c *coder) {
	connectionFields(c, &r.Source)
	c.string(&r.SourceClusterID)
	for _, patterns := range []*[]string{
		&r.TopicsInclude, &r.TopicsExclude, &r.TopicPropertiesExclude, &r.GroupsInclude,
		&r.GroupsExclude, &r.ACLsInclude,
	} {
		c.strings(patterns)
	}
	c.int16(&r.ReplicationFactor)
	for _, mode := range []*string{&r.Transactions, &r.Fillers, &r.EpochFencing, &r.ReadOnly, &r.OnLostRange} {
		c.string(mode)
	}
	c.bool(&r.SupportUncleanLeaderElection)
	c.int64(&r.Throttle)
	c.string(&r.LearntClusterID)
	c.string(&r.TransactionsMode)
	c.string(&r.FillersMode)
	c.int8(new(int8)) // was a slot of the mirror, always 0
	c.bool(&r.Declared)
	c.strings(&r.PendingInclude)
	c.strings(&r.PendingExclude)
	findingFields(c, &r.Finding)
	c.int32(&r.Version)
	c.tags()
}

func connectionFields(c *coder, v *mirror.Connection) {
	c.strings(&v.BootstrapServers)
	s := &v.Security
	for _, text := range []*string{
		&s.Protocol, &s.SASL.Mechanism, &s.SASL.Username, (*string)(&s.SASL.Password),
		&s.SASL.TokenEndpoint, &s.SASL.ClientID, (*string)(&s.SASL.ClientSecret), &s.SASL.Scope,
		&s.TLS.CAFile, &s.TLS.CertFile, &s.TLS.KeyFile, &s.TLS.ServerName,
	} {
		c.string(text)
	}
	c.bool(&s.TLS.SkipHostname)
	c.tags()
}

func findingFields(c *coder, v *Finding) {
	c.kind(&v.Kind)
	c.string(&v.Message)
	c.tags()
}

func (r *Topic) keyFields(c *coder) {
	c.keyString(&r.Mirror)
	c.keyString(&r.Name)
}

func (r *Topic) valueFields(c *coder) {
	c.topicID(&r.SourceID)
	c.topicID(&r.DestinationID)
	c.int32(&r.Partitions)
	c.state(&r.Wish)
	c.bool(&r.ByCommand)
	c.bool(&r.Promoted)
	c.int32(&r.Rearm)
	c.string(&r.Message)
	findingFields(c, &r.Finding)
	c.bool(&r.Drain)
	c.int64(&r.DrainDeadlineMillis)
	c.uuid(&r.DrainCommand)
	c.tags(
		tag{0, r.Unready, func(c *coder) { c.bool(&r.Unready) }},
		tag{1, r.Recreating, func(c *coder) { c.bool(&r.Recreating) }},
		tag{2, r.Slot != 0, func(c *coder) { c.int8(&r.Slot) }},
	)
}

func (r *ShardClaim) keyFields(c *coder) { c.int32(&r.ShardIndex) }

func (r *ShardClaim) valueFields(c *coder) {
	c.int32(&r.Number)
	c.string(&r.Owner)
	c.string(&r.TransactionalID)
	c.string(&r.HTTP)
	c.int64(&r.AtMillis)
	c.bool(&r.Released)
	c.tags()
}

func (r *CommandOutcome) keyFields(c *coder) {
	c.keyString(&r.Mirror)
	c.uuid(&r.ID)
}

func (r *CommandOutcome) valueFields(c *coder) {
	c.string((*string)(&r.Verb))
	c.int64(&r.AtMillis)
	c.string(&r.Message)
	c.bool(&r.Refused)
	list(c, &r.Topics, func(t *mirror.TopicOutcome) {
		c.string(&t.Topic)
		c.bool(&t.Refused)
		c.string(&t.Message)
		c.tags()
	})
	c.string(&r.Requester)
	c.tags()
}

func (r *CommandCursor) keyFields(c *coder) { c.int32(&r.ShardIndex) }

func (r *CommandCursor) valueFields(c *coder) {
	c.int64(&r.Next)
	c.tags()
}

func (r *ShardReport) keyFields(c *coder) { c.int32(&r.ShardIndex) }

// valueFields groups positions by topic, for a report is the record that is written most often.
func (r *ShardReport) valueFields(c *coder) {
	c.string(&r.Owner)
	c.int64(&r.AtMillis)
	topics := r.byTopic()
	list(c, &topics, func(t *topicReport) {
		c.string(&t.mirror)
		c.topicID(&t.topicID)
		list(c, &t.positions, func(p *ReportedPosition) {
			c.varint(&p.Index)
			c.varlong(&p.SourceOffset)
			c.varlong(&p.DestinationOffset)
			c.varlong(&p.LagMillis)
		})
		c.tags()
	})
	c.tags()
	if c.decoding() {
		r.flatten(topics)
	}
}

// topicReport is what a ShardReport says about one topic.
type topicReport struct {
	mirror    string
	topicID   mirror.TopicID
	positions []ReportedPosition
}

// byTopic joins neighbours of one topic; a sorted report is smallest.
func (r *ShardReport) byTopic() (topics []topicReport) {
	for _, p := range r.Positions {
		last := len(topics) - 1
		if last < 0 || topics[last].mirror != p.Mirror || topics[last].topicID != p.TopicID {
			topics = append(topics, topicReport{mirror: p.Mirror, topicID: p.TopicID})
			last++
		}
		topics[last].positions = append(topics[last].positions, p)
	}
	return topics
}

func (r *ShardReport) flatten(topics []topicReport) {
	for _, t := range topics {
		for _, p := range t.positions {
			p.Mirror, p.TopicID = t.mirror, t.topicID
			r.Positions = append(r.Positions, p)
		}
	}
}

func (r *OwnedACL) keyFields(c *coder) {
	c.keyString(&r.Mirror)
	c.keyString(&r.Binding)
}

func (r *OwnedACL) valueFields(c *coder) { c.tags() }

func (r *GroupStatus) keyFields(c *coder) {
	c.keyString(&r.Mirror)
	c.keyString(&r.Group)
}

func (r *GroupStatus) valueFields(c *coder) {
	c.string(&r.Type)
	list(c, &r.Rows, func(g *GroupRow) {
		c.string(&g.Topic)
		c.int32(&g.Partition)
		c.int64(&g.SourceOffset)
		c.int64(&g.DestinationOffset)
		c.string(&g.Metadata)
		c.string(&g.Status)
		c.string(&g.Reason)
		c.int64(&g.CommittedAtMillis)
		c.tags()
	})
	c.tags()
}

func (r *TopicSettings) keyFields(c *coder) {
	c.keyString(&r.Mirror)
	c.keyString(&r.Topic)
}

func (r *TopicSettings) valueFields(c *coder) {
	c.strings(&r.Owned)
	c.stringMap(&r.Source)
	c.tags(
		tag{0, r.Untouched, func(c *coder) { c.bool(&r.Untouched) }},
		tag{1, !r.Trial.IsZero(), func(c *coder) { c.topicID(&r.Trial) }},
		tag{2, len(r.Own) > 0, func(c *coder) { c.stringMap(&r.Own) }},
		tag{3, r.Compacted, func(c *coder) { c.bool(&r.Compacted) }},
	)
}

func (r *ClusterIdentity) keyFields(*coder) {}

func (r *ClusterIdentity) valueFields(c *coder) {
	c.string(&r.ClusterID)
	c.string(&r.GroupID)
	c.tags()
}

func (r *RefreshStatus) keyFields(c *coder) { c.keyString(&r.Mirror) }

func (r *RefreshStatus) valueFields(c *coder) {
	list(c, &r.Failures, func(f *RefreshFailure) {
		c.string(&f.Step)
		c.string(&f.Message)
		c.int32(&f.Count)
		c.int64(&f.SinceMillis)
		c.tags()
	})
	c.tags(tag{0, len(r.Notes) > 0, func(c *coder) { list(c, &r.Notes, func(s *string) { c.string(s) }) }})
}

func (r *SourceEpochs) keyFields(c *coder) { partitionKey(c, &r.Partition) }

func (r *SourceEpochs) valueFields(c *coder) {
	list(c, &r.Epochs, func(p *mirror.Position) {
		c.int32(&p.LeaderEpoch)
		c.int64(&p.Offset)
		c.tags()
	})
	c.tags()
}
