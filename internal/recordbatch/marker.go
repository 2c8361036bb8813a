package recordbatch

import (
	"encoding/binary"
	"errors"
)

// errStop ends a walk whose answer is known.
var errStop = errors.New("stop")

// ErrNoMarker says that a control batch holds no transaction marker: the cleaner took it, or it is of another type.
var ErrNoMarker = errors.New("no transaction marker in control batch")

// Marker is the end of a transaction in one partition.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	Commit           bool
	CoordinatorEpoch int32
	Offset           int64
	Timestamp        int64 // ms since the epoch
}

// Control record types (Kafka's ControlRecordType).
const (
	controlAbort  = 0
	controlCommit = 1
)

// Marker reads a control batch. The error is ErrNoMarker, ErrCorrupt or the codec's.
func (b Batch) Marker(c Codec) (m Marker, err error) {
	if !b.IsControl() {
		return m, ErrNoMarker
	}
	m = Marker{ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch()}
	found := false
	err = b.Records(c, func(r Record) error {
		if found || len(r.Key) < 4 || len(r.Value) < 6 {
			return corrupt("control record at offset %d cannot be read", r.Offset)
		}
		kind := int16(binary.BigEndian.Uint16(r.Key[2:]))
		if kind != controlAbort && kind != controlCommit {
			return ErrNoMarker
		}
		found, m.Commit, m.Offset, m.Timestamp = true, kind == controlCommit, r.Offset, r.Timestamp
		m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		return nil
	})
	if err == nil && !found {
		err = ErrNoMarker
	}
	return m, err
}
