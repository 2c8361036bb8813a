// Package mmm is the mirror metadata manager: it makes everything around the records follow the source: topics and
// their partitions, settings, committed offsets of groups and share groups, ACLs, and the read-only guard.
//
// It owns the records of a mirror that say what was learnt and decided (cluster id, modes, topic ids, findings), what
// mirrord set on the destination (settings, offsets, ACLs), and the step that ends a promotion (Finish: settings back,
// last offsets, rights granted). It never writes a record batch, never changes a partition's state, never touches what a
// STOPPED topic has once it is promoted, and never deletes or overwrites what mirrord did not make. It writes the
// state topic through the coordinator only.
//
// Called by daemon (Manager, Missing, ProbeGuard), coordinator (Resolve, Reseed, by function values) and control (Preview).
//
// Goroutines: one actor per mirror whose shard this instance owns, the only one that changes the destination for that
// mirror, and at most one observer at a time that reads its source, so that a dead source delays nothing else. Both end
// when ownership or the context of Run does.
//
// Always true: a decision is a pure function of what was observed and of the state topic; the lease is checked before
// each change; a change names its topic by id or re-reads it right before; one failure never hides the next.
//
// The guard. Before it is used for the first time, ProbeGuard denies everybody the deletion of __mirror_commands, asks
// what mirrord itself may do there, and takes the rule away: only a super user is not bound by it. A first rule about a
// topic ends allow.everyone.if.no.acl.found for it, readers included; on clusters that rely on that, read_only is "off".
//
// Committed offsets. What mirrord wrote last is in the group's record. An offset that differs from it was moved by
// somebody else, and is then only ever moved forward, after a stop not at all.
//
// Words: a step is one part of a cycle, with its own error counter; a cycle is observe, decide, apply; a guard is the
// DENY that keeps others from writing a mirror topic.
package mmm
