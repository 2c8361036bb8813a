// Package demo tells mirrord's main story on two embedded clusters: live producers, a mirror, kill -9 and a restart,
// pause and resume, a failover and a proof that both sides are equal.
//
// It owns two fake clusters (franz-go's kfake, data in a temporary folder), the producers, and child processes of this
// very binary: `run` and the operator's commands, so that what is shown is what an operator types. It proves nothing
// about real brokers; test/e2e does.
//
// Called by the command line. Its goroutines, one per producer, end before Run returns.
package demo
