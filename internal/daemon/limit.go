package daemon

import (
	"context"
	"fmt"
	"strconv"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	keyMaxMessageBytes = "max.message.bytes"
	keySegmentBytes    = "segment.bytes" // a batch has to fit a segment, too
)

// messageLimit raises what a destination topic takes where a batch of the source meets it (SPEC §8.8): the source may have
// lowered its own limits since it took the batch. The refresh gives the topic the source's limits again; a batch that still
// needs more comes back here.
type messageLimit struct {
	destination *kafka.Cluster
	lease       func() error
}

// raise lets batches of so many bytes in, unless somebody else has done so meanwhile. The topic is named, so its id is
// looked at right before (protocol R17).
func (l messageLimit) raise(ctx context.Context, t mirror.Target, bytes int) error {
	meta, err := l.destination.Metadata(ctx, t.Topic)
	if err != nil {
		return err
	}
	if got := meta.Topics[t.Topic]; got.ID != t.DestinationID {
		return mirror.Errorf(mirror.DestinationGone, "topic %s has another id on the destination: %s, not %s", t.Topic, got.ID, t.DestinationID)
	}
	configs := l.destination.TopicConfigs(ctx, t.Topic)[t.Topic]
	if configs.Err != nil {
		return configs.Err
	}
	change := kafka.ConfigChange{Topic: t.Topic, Set: map[string]string{}}
	if now, err := strconv.Atoi(configs.Entries[keyMaxMessageBytes].Value); err != nil || now < bytes {
		change.Set[keyMaxMessageBytes] = strconv.Itoa(bytes)
	}
	if now, err := strconv.Atoi(configs.Entries[keySegmentBytes].Value); err == nil && now < bytes {
		change.Set[keySegmentBytes] = strconv.Itoa(bytes)
	}
	if len(change.Set) == 0 {
		return nil
	}
	if err := l.destination.AlterTopicConfigs(kafka.WithLease(ctx, l.lease), []kafka.ConfigChange{change})[t.Topic]; err != nil {
		return fmt.Errorf("raise the limits of topic %s to %d: %w", t.Topic, bytes, err)
	}
	return nil
}
