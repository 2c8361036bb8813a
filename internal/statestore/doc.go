// Package statestore is __mirror_state: its schema, its replay and its transactional append.
//
// It owns the two internal topics (__mirror_state, __mirror_commands), the binary form of their records and the View, a
// materialised copy of all shards. It decides nothing: coordinator decides and appends through Append.
//
// Called by coordinator (append, load), mmm, control and the command line (view only).
//
// Goroutines: a reader with one more per leading broker, which follows both topics read_committed; one writer that joins
// waiting appends into one transaction; one that writes owned shards again when the topic was replaced. All end with the
// context of Run.
//
// Always true: records are appended in transactions that carry the group's member id and generation (protocol R15), so
// a former owner's append is refused by the broker; a view is never ahead of what is committed.
package statestore
