package kafka

import "mirrord/internal/mirror"

// ResolveSecret reads the secret that a reference names, on this host. Neither the secret nor a part of it is ever in an
// error. Connections resolve theirs by themselves; this is for checking settings that refer to files.
func ResolveSecret(ref mirror.Secret) (string, error) { return resolve(ref) }
