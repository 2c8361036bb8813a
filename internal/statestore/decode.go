package statestore

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// UnknownTypeError says that a record is of a type that this release does not know. Such records are skipped and
// counted.
type UnknownTypeError struct{ Type int16 }

func (e *UnknownTypeError) Error() string { return fmt.Sprintf("record type %d is unknown", e.Type) }

// schema is implemented by pointers to record types.
type schema[T any] interface {
	*T
	keyFields(*coder)
	valueFields(*coder)
}

var decoders = map[int16]func(key *coder, value []byte) (Record, error){
	typeLastMirrorEpoch: decode[LastMirrorEpoch],
	typePartitionState:  decode[PartitionState],
	typeMirror:          decode[Mirror],
	typeTopic:           decode[Topic],
	typeShardClaim:      decode[ShardClaim],
	typeCommandOutcome:  decode[CommandOutcome],
	typeCommandCursor:   decode[CommandCursor],
	typeShardReport:     decode[ShardReport],
	typeOwnedACL:        decode[OwnedACL],
	typeGroupStatus:     decode[GroupStatus],
	typeTopicSettings:   decode[TopicSettings],
	typeClusterIdentity: decode[ClusterIdentity],
	typeSourceEpochs:    decode[SourceEpochs],
	typeRefreshStatus:   decode[RefreshStatus],
}

// DecodeRecord reads one record of __mirror_state. A null value gives a Tombstone. An UnknownTypeError may be skipped,
// any other error means that the record cannot be read.
func DecodeRecord(key, value []byte) (Record, error) {
	c := &coder{in: &kbin.Reader{Src: key}}
	kind := c.in.Int16()
	if !c.in.Ok() {
		return nil, errors.New("decode key: ends before the record type")
	}
	decodeType, ok := decoders[kind]
	if !ok {
		return nil, &UnknownTypeError{kind}
	}
	r, err := decodeType(c, value)
	if err != nil {
		return nil, fmt.Errorf("decode record of type %d: %w", kind, err)
	}
	return r, nil
}

func decode[T Record, P schema[T]](key *coder, value []byte) (Record, error) {
	var r T
	P(&r).keyFields(key)
	if err := key.finish(); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if value == nil {
		return Tombstone{r}, nil
	}
	c := &coder{in: &kbin.Reader{Src: value}}
	if version := c.in.Int16(); c.in.Ok() && version != 0 {
		return nil, fmt.Errorf("value of version %d: only version 0 is known", version)
	}
	P(&r).valueFields(c)
	if err := c.finish(); err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return r, nil
}
