package config

import (
	"fmt"
	"strings"

	"mirrord/internal/mirror"
)

// Reference is docs/config.md: every key with its type, default, range and meaning. A test keeps the file equal.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	cfg := Default()
	writeTable(&b, settings(), &cfg)
	b.WriteString(referenceMirrors)
	d := mirror.DefaultDefinition("")
	writeTable(&b, mirrorSettings(), &d)
	b.WriteString(referenceTail)
	return b.String()
}

func writeTable[T any](b *strings.Builder, table []setting[T], defaults *T) {
	b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
	for _, s := range table {
		value := s.kind
		if s.rule != "" {
			value += ": " + s.rule
		}
		fmt.Fprintf(b, "| `%s` | %s | `%s` | %s |\n", s.name, cell(value), cell(s.format(defaults)), cell(s.doc))
	}
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

const referenceHead = `# Configuration

mirrord reads one YAML file (` + "`mirrord run --config FILE`" + `). This page is generated from the table that the program itself
reads with; ` + "`configs/mirrord.yaml`" + ` spells out the same keys with their defaults.

- Every key can be given by the environment as well, which wins over the file: ` + "`destination.bootstrap_servers`" + ` is
  ` + "`MIRRORD_DESTINATION_BOOTSTRAP_SERVERS`" + `, key ` + "`name`" + ` of the first mirror is ` + "`MIRRORD_MIRRORS_0_NAME`" + `. Lists are separated by
  commas, or written as a YAML list. A variable that begins with a section, like ` + "`MIRRORD_HTTP_`" + `, or is nearly a key, and is
  none, is a mistake; others are left alone.
- Durations have a unit (` + "`100ms`, `30s`, `5m`" + `), sizes are bytes or have one (` + "`10MiB`, `1GiB`, `500kB`" + `).
- Paths are relative to the folder of the file. Files must exist when the configuration is read.
- Secrets are never in the file: it names the files that hold them. They are read again at each connection, so a changed
  password needs no reload.
- A pattern is a literal name if it is made only of letters, digits, ` + "`.`, `_` and `-`" + `; otherwise it is an RE2 expression that
  must match the whole name.
- An unknown key, a key given twice, a wrong type, a value out of range, a missing file or a second document is refused,
  all mistakes at once, each with its line. ` + "`mirrord check --config FILE --offline`" + ` does the same without starting anything.

` + "`systemctl reload`" + ` (SIGHUP) reads the file again. Mirrors, ` + "`throttle`, `memory_limit`, `log.level`" + ` and the token take effect at once;
for other keys the log names those that wait for a restart. A bad file changes nothing: the mistakes are logged and
` + "`mirrord_config_reload_success`" + ` is 0 until a good one is read.

## Keys

`

const referenceMirrors = `
## Keys of a mirror

` + "`mirrors`" + ` is a list; each item has these keys. Declared mirrors are created, started and altered to match. Leaving one out
never deletes it: that takes ` + "`mirrord delete`" + `. As long as a mirror is declared, ` + "`mirrord alter` and `delete`" + ` are
refused: the file is the place to change.

`

const referenceTail = `
## A mirror's properties file

` + "`mirrord create` and `alter`" + ` read the same settings from a Kafka properties file, by Kafka's names for the connection
(` + "`bootstrap.servers`, `security.protocol`, `sasl.*`, `ssl.*`" + `), ` + "`source.cluster.id`" + `, and the keys above with dots in place of
underscores (` + "`topics.include`" + `).
`
