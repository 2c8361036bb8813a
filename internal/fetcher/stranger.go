package fetcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// stranger says where in the destination somebody else's records begin (protocol R21).
type stranger struct{ offset int64 }

func (s stranger) Error() string {
	return "somebody else has written into the destination topic"
}

const nameStranger = 5 * time.Second // a failure does not wait longer for a name

// named adds to a failure whose records they are, where that can be read.
func (pool *Pool) named(err error, tp kafka.TP) error {
	s, ok := errors.AsType[stranger](err)
	if !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(pool.ctx, nameStranger)
	defer cancel()
	f, readErr := pool.deps.Destination.Read(ctx, tp, s.offset, kafka.ReadOptions{})
	if readErr != nil {
		return err
	}
	b, _, cutErr := recordbatch.Cut(f.Bytes)
	if cutErr != nil {
		return err
	}
	return mirror.Errorf(mirror.IdentityBroken, "%w (offset %d: %s)", err, b.BaseOffset(), writtenBy(b))
}

// writtenBy says who wrote a batch, as far as its header tells.
func writtenBy(b recordbatch.Batch) string {
	switch id := b.ProducerID(); {
	case b.IsControl():
		return fmt.Sprintf("a marker of producer id %d, epoch %d", id, b.ProducerEpoch())
	case id >= mirror.IdentityProducerIDs:
		return fmt.Sprintf("a mirror, producer id %d", id)
	case id >= 0:
		return fmt.Sprintf("producer id %d, epoch %d", id, b.ProducerEpoch())
	}
	return "a producer without an id"
}
