package statestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// The internal topics.
const (
	StateTopic    = "__mirror_state"
	CommandsTopic = "__mirror_commands"
)

// commandsRetention is how long commands are kept, as history.
const commandsRetention = 7 * 24 * time.Hour

// ErrNoState says that the destination has no state topic. An instance may run nevertheless, waiting for what it needs to
// create one.
var ErrNoState = errors.New("the destination has no topic " + StateTopic + ": no instance of mirrord has prepared it yet; " +
	"where one runs, its log and /readyz say what it waits for")

// Config says how the internal topics are created and in which group the instances meet.
type Config struct {
	NumPartitions     int32
	ReplicationFactor int16
	GroupID           string
}

// Validate reports every problem at once, each with its full key.
func (c Config) Validate(key string) error {
	var errs []error
	if c.NumPartitions < 1 || c.NumPartitions > 10_000 {
		errs = append(errs, fmt.Errorf("%s.num_partitions: must be 1 to 10000, got %d", key, c.NumPartitions))
	}
	if c.ReplicationFactor < 1 && c.ReplicationFactor != -1 {
		errs = append(errs, fmt.Errorf("%s.replication_factor: must be at least 1, or -1 for the cluster's default, got %d", key, c.ReplicationFactor))
	}
	if c.GroupID == "" {
		errs = append(errs, errors.New("group_id: must not be empty"))
	}
	return errors.Join(errs...)
}

// stateSettings are what a state topic is created with; segments are small, since cleaning spares the newest one and
// every start reads all that is left.
func stateSettings(minISR string) map[string]string {
	return map[string]string{
		"cleanup.policy": "compact", "compression.type": "producer", "retention.ms": "-1",
		"unclean.leader.election.enable": "false", "min.insync.replicas": minISR, "segment.bytes": "2097152",
		"min.cleanable.dirty.ratio": "0.1",
	}
}

func commandsSettings(minISR string) map[string]string {
	return map[string]string{
		"cleanup.policy": "delete", "retention.ms": strconv.FormatInt(commandsRetention.Milliseconds(), 10),
		"unclean.leader.election.enable": "false", "min.insync.replicas": minISR,
	}
}

// required are the settings that are corrected where a topic has others.
var required = map[string][]string{
	StateTopic:    {"cleanup.policy", "compression.type", "retention.ms"},
	CommandsTopic: {"cleanup.policy"},
}

// EnsureTopics creates the two internal topics where they are missing and corrects what would lose state, with a
// warning. Another number of partitions than configured is used as found, with a warning. It returns the number of
// shards.
func EnsureTopics(ctx context.Context, cluster *kafka.Cluster, cfg Config, log *slog.Logger) (shards int32, err error) {
	return ensureTopics(ctx, cluster, cfg, log, func() {})
}

// ensureTopics calls uncommanded, before anything is created, if there is no topic of commands.
func ensureTopics(ctx context.Context, cluster *kafka.Cluster, cfg Config, log *slog.Logger, uncommanded func()) (shards int32, err error) {
	m, err := cluster.Metadata(ctx, StateTopic, CommandsTopic)
	if err != nil {
		return 0, fmt.Errorf("look for the internal topics: %w", err)
	}
	if kafka.UnknownTopic(m.Topics[CommandsTopic].Err) {
		uncommanded()
	}
	e := ensurer{cluster, cfg, log, len(m.Brokers)}
	if shards, err = e.state(ctx, m.Topics[StateTopic]); err != nil {
		return 0, err
	}
	return shards, e.commands(ctx, m.Topics[CommandsTopic], shards)
}

type ensurer struct {
	cluster *kafka.Cluster
	cfg     Config
	log     *slog.Logger
	brokers int
}

func (e *ensurer) state(ctx context.Context, t kafka.Topic) (int32, error) {
	if kafka.UnknownTopic(t.Err) {
		return e.cfg.NumPartitions, e.create(ctx, StateTopic, e.cfg.NumPartitions, stateSettings(e.minISR()))
	}
	if t.Err != nil {
		return 0, fmt.Errorf("look for topic %s: %w", StateTopic, t.Err)
	}
	found := int32(len(t.Partitions))
	if found != e.cfg.NumPartitions {
		e.log.Warn("state topic has another number of partitions than configured, used as found",
			mirror.KeyTopic, StateTopic, "found", found, "configured", e.cfg.NumPartitions)
	}
	return found, e.correct(ctx, StateTopic, stateSettings(e.minISR()))
}

func (e *ensurer) commands(ctx context.Context, t kafka.Topic, shards int32) error {
	if kafka.UnknownTopic(t.Err) {
		return e.create(ctx, CommandsTopic, shards, commandsSettings(e.minISR()))
	}
	if t.Err != nil {
		return fmt.Errorf("look for topic %s: %w", CommandsTopic, t.Err)
	}
	if found := int32(len(t.Partitions)); found < shards {
		if err := e.cluster.CreatePartitions(ctx, map[string]int32{CommandsTopic: shards})[CommandsTopic]; err != nil {
			return fmt.Errorf("grow topic %s from %d to %d partitions: %w", CommandsTopic, found, shards, err)
		}
	}
	return e.correct(ctx, CommandsTopic, commandsSettings(e.minISR()))
}

func (e *ensurer) minISR() string {
	if e.cfg.ReplicationFactor >= 2 {
		return "2"
	}
	return "1"
}

func (e *ensurer) create(ctx context.Context, name string, partitions int32, settings map[string]string) error {
	if rf := int(e.cfg.ReplicationFactor); rf > e.brokers {
		return mirror.Errorf(mirror.Refused, "create topic %s: replication factor %d, but the destination has %d broker(s)",
			name, rf, e.brokers).WithHint("set state_topic.replication_factor to at most the number of brokers")
	}
	_, err := e.cluster.CreateTopic(ctx, kafka.TopicSpec{
		Name: name, Partitions: partitions,
		ReplicationFactor: e.cfg.ReplicationFactor, Configs: settings,
	})
	if err != nil && !kafka.TopicExists(err) { // another instance was faster
		return err
	}
	return nil
}

// correct sets the required settings that differ.
func (e *ensurer) correct(ctx context.Context, name string, settings map[string]string) error {
	have := e.cluster.TopicConfigs(ctx, name)[name]
	if have.Err != nil {
		return fmt.Errorf("read settings of topic %s: %w", name, have.Err)
	}
	wrong := map[string]string{}
	for _, key := range required[name] {
		if entry, ok := have.Entries[key]; ok && entry.Value != settings[key] {
			wrong[key] = settings[key]
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	if err := e.cluster.AlterTopicConfigs(ctx, []kafka.ConfigChange{{Topic: name, Set: wrong}})[name]; err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		e.log.Warn("corrected a setting of an internal topic", mirror.KeyTopic, name, "setting", key,
			mirror.KeyFrom, have.Entries[key].Value, mirror.KeyTo, wrong[key])
	}
	return nil
}
