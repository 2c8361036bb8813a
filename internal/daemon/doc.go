// Package daemon is the process: it builds all parts of mirrord, runs them in order and ends them in order.
//
// It owns the life of the process (start, reload, shutdown, systemd), logging, the metrics registry, the connections to
// clusters, and the one file that knows every package (wire.go). It never decides about mirrors and never touches a
// record.
//
// Called by cmd (Run, Check) and by tests (New), which may run several daemons in one process: there are no globals but
// the runtime's memory limit.
//
// Goroutines: one per actor of a stage, see (*Daemon).stages; each ends with its stage's context. Signals are read by
// one that ends with Run.
//
// Always true: an unreachable cluster or one bad mirror never ends the process; after a request to stop, Run returns
// within 10 s whatever the clusters do; whoever writes the last positions outlives whoever produces them.
package daemon
