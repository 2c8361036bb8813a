// Package config is the configuration file: its keys, their defaults and ranges, and what is wrong with a given file.
//
// It owns one table of settings (keys.go) from which reading, checking, the shipped configs/mirrord.yaml and
// docs/config.md all follow. It never connects to a cluster and never holds a secret, only where one lies.
//
// Called by daemon (start and reload), control (the destination of --config) and cmd. No component imports it: daemon
// hands each one its own part.
//
// It starts no goroutine.
//
// Always true: Load returns either a configuration in which every value is legal, or all mistakes of the file at once,
// each with its key and, where there is one, its line.
package config
