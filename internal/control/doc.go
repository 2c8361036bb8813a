// Package control is the operator's side of mirrord: the HTTP server with metrics, health, API and console, and what the
// command line does against the destination.
//
// It owns the shape of what operators see (rows.go), the history of recent events, and how a command is submitted,
// awaited and shown. It decides nothing: a command is a record that a coordinator executes, and every answer is read from
// the view of the state topic. It never connects to a source, except for what the command line's verify and plan are
// given.
//
// Called by daemon (OpenServer, Server.Run) and cmd.
//
// Goroutines: those of the HTTP server, which end with Server.Run.
//
// Always true: what changes something needs the token; nothing that is shown holds a secret; /healthz, /readyz and
// /metrics answer whatever the clusters do.
package control
