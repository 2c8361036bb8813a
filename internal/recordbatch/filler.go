package recordbatch

import "bytes"

// Fillers take the place of the offsets below a source's log start while a new topic is seeded (protocol R13). All
// records are empty: null key, null value. The first one carries a header that tells fillers from data. A stored format.
const (
	fillerHeader  = "__mirrord_filler"
	fillerVersion = "1"
)

// MaxFiller is the largest useful count of a Filler: about 10^6 offsets stay well below 1 MiB compressed, the smallest
// common limit of a broker.
const MaxFiller int32 = 1_000_000

// Filler gives a batch of count empty records, all of the same time (ms since the epoch), zstd-compressed, base offset 0,
// no identity. count is 1 to MaxFiller.
func Filler(c Codec, count int32, timestamp int64) (Batch, error) {
	first := appendFields(nil, Record{Headers: []Header{{[]byte(fillerHeader), []byte(fillerVersion)}}})
	empty := appendFields(nil, Record{})
	var w builder
	w.add(0, timestamp, 0, first)
	for offset := int64(1); offset < int64(count); offset++ {
		w.add(offset, timestamp, 0, empty)
	}
	return w.finish(c, uint16(CodecZstd))
}

// IsFiller reports whether the batch is one that Filler made. Batches that cannot be are told apart by their header,
// without decompressing them.
func IsFiller(b Batch, c Codec) bool {
	if !b.AsIs() || b.Codec() != CodecZstd || b.IsTransactional() || b.FirstTimestamp() != b.MaxTimestamp() {
		return false
	}
	found := false
	err := b.Records(c, func(r Record) error {
		found = r.Key == nil && r.Value == nil && len(r.Headers) == 1 &&
			bytes.Equal(r.Headers[0].Key, []byte(fillerHeader))
		return errStop
	})
	return found && err == errStop //nolint:errorlint // our own sentinel, unwrapped
}
