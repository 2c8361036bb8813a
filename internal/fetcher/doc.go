// Package fetcher is the data path: it copies the records of mirror partitions, keeping every offset.
//
// It owns fetch threads, per-partition pipelines, sinks, fillers, seeding and trimming, and the positions that are shown
// as lag. It is given the full set of partitions each time (Pool.Reconcile); those that are not to be mirrored are only
// watched.
//
// It never writes a state: a partition that cannot go on leaves through Deps.Failed, once. It never repeats a write whose
// outcome is open before it has looked at the destination, and never skips an offset without counting it.
//
// The daemon makes the Pool, the coordinator tells it what to mirror. Goroutines, all ended by Run's context after a drain
// of 10 s at most: one loop; per mirror, source broker and index one thread, which ends when it has no partition left;
// two per destination broker and connection; and short-lived workers for looks, fillers, trims and watches, a bounded few
// per broker. Nothing runs, ticks or waits per partition.
//
// Always true, for each partition:
//
//   - What is written next is exactly the source's batch for the offset at which the destination's log ends, under an
//     identity whose sequence the broker checks (protocol R1–R6), or fillers for offsets that cannot be copied (R10–R13).
//   - An answered offset is the offset at the source, or the partition fails and nothing follows.
//   - The pipeline (pipeline.go, plan.go) is pure: no client, no clock. What it may assume of a broker is in its tests.
package fetcher
