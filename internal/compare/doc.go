// Package compare finds out whether two logs agree, and where they part.
//
// It owns four questions: Align (may a mirror go on at the destination's log end, and if not, from which offset do the
// logs differ), Tail (the same for thousands of partitions whose history is known, by their last records only), Verify
// (are both sides equal, record by record) and Export (save what only one side has).
//
// It never writes to a cluster, keeps no state between calls and decides nothing: it answers. The coordinator calls Align
// as the effect of LOG_TRUNCATION, the fetcher calls Tail before it appends anything (protocol R7), the command line
// calls Verify, reseeding calls Export. Each call starts a bounded number of goroutines and has ended them when it
// returns.
//
// What is compared is what a read_committed consumer gets: offset, timestamp, key, value and headers of each record, null
// apart from empty. Control records and holes are invisible to it and to us. Beyond the last stable offset nothing is
// decided yet; there the bare records are compared, and a transaction that only one side has decided makes us wait. On
// topics with compaction each side cleans for itself, so a record that only one side holds is no difference there.
//
// Always true:
//
//   - An answer "equal" was read from both logs, never derived from lengths or epochs.
//   - Memory is bounded whatever the logs hold: a few fetch answers and one decompressed batch per partition at work.
//   - Nothing transient is called a divergence: leaders that have not caught up, open transactions and unreachable
//     brokers give a retryable error.
//
// # The format of an export
//
// One JSON object a line, in offset order:
//
//	{"offset":950,"timestamp":1700000000000,"key":"k","value":"v","headers":[{"key":"h","value":"x"}]}
//
// timestamp is in ms since the epoch. key and value are null where the record's are. Bytes that are not UTF-8 stand in
// keyBase64 and valueBase64 instead, in headers likewise. To produce an export again without headers and binary data:
//
//	jq -r '[.key, .value] | @tsv' FILE | kcat -P -b HOST:PORT -t TOPIC -p PARTITION -K '\t' -Z
package compare
