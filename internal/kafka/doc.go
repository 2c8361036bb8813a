// Package kafka is the only place that dials a broker and the only place that knows Kafka's error codes.
//
// It owns the connections to one cluster (Cluster for metadata and administration, Conn for the data path), the wire
// form of Fetch and Produce, the batched reads by which a resume point is found, and the classification of errors.
//
// It never decides what is written where, never retries a request whose repetition could change a log, never creates a
// topic unasked, and never prints or stores a secret: those are resolved anew each time a connection is made.
//
// Everybody above calls it. A Cluster runs franz-go's goroutines until Close; a Conn runs one reader, which ends when
// the connection does; nothing else outlives the call that started it.
//
// Always true: an error that leaves this package is understood by Classify; a call on a Conn is answered exactly once;
// a pooled buffer is not reused before its last holder released it.
package kafka
