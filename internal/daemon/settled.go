package daemon

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
)

// How long a comparison waits for the metadata manager to give destination topics the settings of a mirror, which those
// that were promoted, or that were there before the mirror, do not have.
const (
	settingsPatience = 5 * time.Second
	settingsPause    = 100 * time.Millisecond
)

// settled waits until the destination topics of targets store records as they come, and tells of those that do not: what
// their broker has changed, or cleaned away, cannot be taken back, so they must not be mirrored yet (SPEC §8.8, protocol R8).
func (e *effects) settled(ctx context.Context, source *kafka.Cluster, targets []mirror.Target) (unfit map[string]error) {
	topics := map[string]struct{}{}
	for _, t := range targets {
		topics[t.Topic] = struct{}{}
	}
	originals := source.TopicConfigs(ctx, sortedKeys(topics)...)
	for began := time.Now(); ; {
		unfit = map[string]error{}
		complete := true
		for topic, settings := range e.destination.TopicConfigs(ctx, sortedKeys(topics)...) {
			missing, harmful := mmm.Missing(settings)
			if cleans := mmm.Cleans(originals[topic], settings); cleans != "" {
				missing, harmful = cleans, true
			}
			switch {
			case settings.Err != nil:
				unfit[topic] = fmt.Errorf("read the destination topic's settings: %w", settings.Err)
			case harmful:
				unfit[topic] = mirror.Errorf(mirror.Retriable, "the destination topic is not set up for mirroring yet: it has %s", missing)
			}
			complete = complete && missing == ""
		}
		if complete || time.Since(began) > settingsPatience {
			return unfit
		}
		select {
		case <-ctx.Done():
			return unfit
		case <-time.After(settingsPause):
		}
	}
}
