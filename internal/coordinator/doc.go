// Package coordinator owns the states of mirror partitions: which instance is responsible for which shard of
// __mirror_state, what is decided there, and what has to be done about it.
//
// An instance joins a consumer group on __mirror_state. The owner of partition n is the coordinator of shard n: it loads
// the shard to its end, claims it by a record, drives its partitions from state to state, executes the commands of the
// mirrors whose shard it is, and gives the shard up in order or, when its session is over, at once. Every decision about
// a partition is the pure function facts.step in shard.go; every change of a state is a record appended through
// statestore, and an effect begins only after its record is committed.
//
// It never moves records, never talks to a source and never changes a topic: the data path, alignment, promotion and the
// metadata manager do, through the functions of Deps. It never decides by what it remembers: what counts is the view.
//
// Called by daemon (New, Run), fetcher and mmm through functions wired there (Failed, Fencing, Put), control
// (ReadMirrorStates, WriteMirrorStates).
//
// Goroutines: one event loop (runner), which owns all data about shards and partitions; it never waits for the network.
// One that sends heartbeats for the lease, those of the group's client, one per append and per running effect batch, one
// per slow command. All of them end before Run returns, those that wait for the network within some seconds.
//
// One loop, not one per shard: decisions take microseconds, appends of all shards are joined into one transaction and
// effects are batched over all shards, so that a stop of thousands of partitions is a handful of requests.
//
// Always true: a partition is driven only by the instance that has claimed its shard and whose lease lasts (protocol R15,
// R16); at most one append per shard is under way, and nothing is decided about the shard until the view shows it; every
// transition is legal by mirror.CanEnter.
package coordinator
