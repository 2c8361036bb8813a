// Package recordbatch reads and rewrites the bytes of Kafka record batches.
//
// It owns the layout of the v2 record batch and of the older message sets: cutting a fetch answer into batches, the
// header view Batch, the in-place rewrite Patch, the record codec (Records, Build), and the three ways in which mirrord
// makes new batches: Recode (a batch that cannot pass as it is), Joiner (many small ones into one) and Filler (the
// offsets below a source's log start).
//
// It never does I/O, keeps no state between calls, logs nothing and imports the standard library only. Compression is
// given to it as a Codec.
//
// The fetcher calls it for every batch, compare for every record, kafka and promote for control batches. It starts no
// goroutine. Nothing here is safe for concurrent use of the same bytes or the same Joiner.
//
// Always true:
//
//   - No input makes it panic or allocate more than a multiple of the input's size, and of MaxRecord where it is
//     compressed: a payload that inflates to more than the Codec gives at once passes through a window. The one exception
//     is documented at Patch and the getters: they expect a Batch that Cut gave.
//   - A checksum is never made valid over bytes that were not checked: Patch derives the new CRC from the old one, so a
//     damaged batch stays damaged; Records, Recode and Joiner check the source's CRC first.
//   - What is rewritten keeps offset, timestamp, key, value and headers of each record, null apart from empty.
package recordbatch
