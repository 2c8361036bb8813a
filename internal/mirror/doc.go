// Package mirror is the vocabulary of mirrord: states, names, positions, definitions and error kinds that every
// other package speaks.
//
// It owns the state table, the pure decisions over it, and the hashes that are a stored format. It never does I/O,
// reads no clock, starts no goroutine and imports the standard library only. Everybody calls it.
//
// Always true: a State, a hash or a producer id computed here means the same in every release, since all of them are
// stored on the destination.
package mirror
