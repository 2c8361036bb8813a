package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ScramUsers lists the users with SCRAM credentials and their mechanisms, which are not mirrored: the secrets cannot be read.
// Needs Kafka 2.7.
func (c *Cluster) ScramUsers(ctx context.Context) (map[string][]string, error) {
	const op = "list SCRAM users"
	resp, err := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](ctx, c, op, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest())
	if err != nil {
		return nil, err
	}
	if err := answerError(op, resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for _, r := range resp.Results {
		if r.ErrorCode == kerr.ResourceNotFound.Code {
			continue
		}
		if err := answerError(op, r.ErrorCode, r.ErrorMessage); err != nil {
			return nil, err
		}
		for _, info := range r.CredentialInfos {
			users[r.User] = append(users[r.User], scramMechanism(info.Mechanism))
		}
	}
	return users, nil
}

func scramMechanism(m int8) string {
	switch m {
	case 1:
		return "SCRAM-SHA-256"
	case 2:
		return "SCRAM-SHA-512"
	}
	return fmt.Sprintf("mechanism %d", m)
}

// Quota is a client quota. Entity is as kafka-configs shows it, such as "client-id=app,user=alice"; a default has the
// name <default>.
type Quota struct {
	Entity string
	Values map[string]float64
}

// ClientQuotas lists all client quotas. Needs Kafka 2.6.
func (c *Cluster) ClientQuotas(ctx context.Context) ([]Quota, error) {
	const op = "list client quotas"
	resp, err := ask[*kmsg.DescribeClientQuotasResponse](ctx, c, op, kmsg.NewPtrDescribeClientQuotasRequest())
	if err != nil {
		return nil, err
	}
	if err := answerError(op, resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	quotas := make([]Quota, 0, len(resp.Entries))
	for _, e := range resp.Entries {
		q := Quota{Entity: quotaEntity(e.Entity), Values: map[string]float64{}}
		for _, v := range e.Values {
			q.Values[v.Key] = v.Value
		}
		quotas = append(quotas, q)
	}
	slices.SortFunc(quotas, func(a, b Quota) int { return strings.Compare(a.Entity, b.Entity) })
	return quotas, nil
}

func quotaEntity(parts []kmsg.DescribeClientQuotasResponseEntryEntity) string {
	names := map[string]string{}
	for _, p := range parts {
		names[p.Type] = "<default>"
		if p.Name != nil {
			names[p.Type] = *p.Name
		}
	}
	texts := make([]string, 0, len(names))
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		texts = append(texts, kind+"="+names[kind])
	}
	return strings.Join(texts, ",")
}
