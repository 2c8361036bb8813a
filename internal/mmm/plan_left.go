package mmm

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mirrord/internal/kafka"
)

// notMirrored reports client quotas and SCRAM users that the destination does not have, with what to run there.
func (v preview) notMirrored(ctx context.Context, src *kafka.Cluster) {
	v.quotas(ctx, src)
	v.users(ctx, src)
}

// left notes what is left to the operator. Options are those of kafka-configs.
func (v preview) left(what, name, options string) {
	run := "kafka-configs.sh --bootstrap-server " + strings.Join(v.loop.deps.Destination.Bootstrap(), ",") + " --alter " + options
	v.plan.NotMirrored = append(v.plan.NotMirrored, NotMirrored{what, name, run})
}

func (v preview) quotas(ctx context.Context, src *kafka.Cluster) {
	known := map[string]map[string]float64{}
	there, _ := within(ctx, v.loop.cfg.CallTimeout, v.loop.deps.Destination.ClientQuotas) // not told: all are left
	for _, q := range there {
		known[q.Entity.String()] = q.Values
	}
	for _, q := range listOf(ctx, v, src.ClientQuotas) {
		if maps.Equal(q.Values, known[q.Entity.String()]) {
			continue
		}
		var values []string
		for _, key := range slices.Sorted(maps.Keys(q.Values)) {
			values = append(values, key+"="+strconv.FormatFloat(q.Values[key], 'f', -1, 64))
		}
		v.left("client quota", q.Entity.String(), "--add-config "+strings.Join(values, ",")+entityOptions(q.Entity))
	}
}

func (v preview) users(ctx context.Context, src *kafka.Cluster) {
	known, _ := within(ctx, v.loop.cfg.CallTimeout, v.loop.deps.Destination.ScramUsers) // not told: all are left
	users := listOf(ctx, v, src.ScramUsers)
	for _, user := range slices.Sorted(maps.Keys(users)) {
		for _, mechanism := range users[user] {
			if !slices.Contains(known[user], mechanism) {
				v.left("SCRAM user", user, fmt.Sprintf("--add-config '%s=[password=…]' --entity-type users --entity-name %s", mechanism, quoted(user)))
			}
		}
	}
}

// listOf is what the source lists; nothing if it is too old to have any.
func listOf[T any](ctx context.Context, v preview, list func(context.Context) (T, error)) T {
	all, err := within(ctx, v.loop.cfg.CallTimeout, list)
	if err != nil && !kafka.UnsupportedVersion(err) {
		v.problem(err)
	}
	return all
}

// entityOptions spells a quota's entity as options of kafka-configs.
func entityOptions(e kafka.QuotaEntity) (options string) {
	types := map[string]string{"user": "users", "client-id": "clients", "ip": "ips"}
	for _, part := range e {
		options += " --entity-type " + types[part.Type]
		if part.Default {
			options += " --entity-default"
		} else {
			options += " --entity-name " + quoted(part.Name)
		}
	}
	return options
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:@%+,=-]+$`)

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
