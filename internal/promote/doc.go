// Package promote makes mirror partitions fit to be written to by others: it raises their leader epochs and ends the
// transactions that the source will never end here.
//
// It owns the effects of the states EPOCH_FENCING and STOPPING that touch the destination's leader epochs and transaction
// markers. It never touches the source, writes no state, never ends a transaction of the destination's own producers
// (protocol R19), and never disturbs a reassignment that somebody else has begun (R17).
//
// The coordinator calls it, by functions wired in package daemon. It starts no goroutine.
//
// Always true: every call can be cut off anywhere and repeated. A leader epoch is then raised once more than needed; a
// transaction is looked at before a marker is written; a replica that was being added for a moment is recognised by its
// place and taken away again. What a process that dies within these few milliseconds can leave behind is harmless, and not
// told from an operator's doing: a replica more, if the cluster completes the addition before anybody looks, or another
// order of replicas where all brokers host the partition.
package promote
