package statestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// SubmittedCommand is a command and where it lies in __mirror_commands.
type SubmittedCommand struct {
	mirror.Command
	Partition int32
	Offset    int64
}

// NewCommandID makes a random id.
func NewCommandID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// EncodeCommand is the value of a command's record; its key is the id.
func EncodeCommand(cmd mirror.Command) []byte {
	return encodeValue(func(c *coder) { commandFields(c, &cmd) })
}

// DecodeCommand reads a record of __mirror_commands.
func DecodeCommand(key, value []byte) (cmd mirror.Command, err error) {
	if len(key) != len(cmd.ID) {
		return cmd, fmt.Errorf("decode command: key of %d bytes, want %d", len(key), len(cmd.ID))
	}
	if value == nil {
		return cmd, errors.New("decode command: no value")
	}
	cmd.ID = [16]byte(key)
	c := &coder{in: &kbin.Reader{Src: value}}
	if version := c.in.Int16(); c.in.Ok() && version != 0 {
		return cmd, fmt.Errorf("decode command: value of version %d: only version 0 is known", version)
	}
	commandFields(c, &cmd)
	if err := c.finish(); err != nil {
		return cmd, fmt.Errorf("decode command: %w", err)
	}
	return cmd, nil
}

func commandFields(c *coder, cmd *mirror.Command) {
	c.int64(&cmd.AtMillis)
	c.string((*string)(&cmd.Verb))
	c.string(&cmd.Mirror)
	c.strings(&cmd.Topics)
	c.strings(&cmd.Exclude)
	c.stringMap(&cmd.Settings)
	c.bool(&cmd.Drain)
	c.bool(&cmd.Reseed)
	c.int64(&cmd.TimeoutMillis)
	c.tags()
}

// submitTimeout bounds one SubmitCommand: a cluster that does not take a record by then is not reachable.
const submitTimeout = 10 * time.Second

// SubmitCommand appends a command to __mirror_commands. Repeating it is harmless: a command is executed once per id.
// There must be a state topic, whose partition count decides where the command goes.
func SubmitCommand(ctx context.Context, cluster *kafka.Cluster, cmd mirror.Command) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	m, err := cluster.Metadata(ctx, StateTopic, CommandsTopic)
	if err != nil {
		return fmt.Errorf("submit command: %w", err)
	}
	shards, commands := len(m.Topics[StateTopic].Partitions), len(m.Topics[CommandsTopic].Partitions)
	if shards == 0 || commands < shards {
		return fmt.Errorf("submit command: %w", ErrNoState)
	}
	client, err := kgo.NewClient(append(cluster.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0))...)
	if err != nil {
		return fmt.Errorf("submit command: %w", err)
	}
	defer client.Close()
	record := &kgo.Record{
		Topic: CommandsTopic, Partition: mirror.ShardOfMirror(cmd.Mirror, int32(shards)),
		Key: cmd.ID[:], Value: EncodeCommand(cmd),
	}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return fmt.Errorf("submit command: %w", classified(err))
	}
	return nil
}
