package kafka

import (
	"context"
	"fmt"
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

// Quota is a client quota. Entity holds one part or two, sorted by type.
type Quota struct {
	Entity QuotaEntity
	Values map[string]float64
}

// QuotaEntity is whom a quota is about.
type QuotaEntity []QuotaPart

// QuotaPart is one part of it. Type is user, client-id or ip.
type QuotaPart struct {
	Type, Name string
	Default    bool // whoever has no quota by name
}

// String is as kafka-configs shows it, such as "client-id=app,user=alice".
func (e QuotaEntity) String() string {
	texts := make([]string, len(e))
	for i, p := range e {
		texts[i] = p.Type + "=" + p.Name
		if p.Default {
			texts[i] = p.Type + "=<default>"
		}
	}
	return strings.Join(texts, ",")
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
	slices.SortFunc(quotas, func(a, b Quota) int { return strings.Compare(a.Entity.String(), b.Entity.String()) })
	return quotas, nil
}

func quotaEntity(parts []kmsg.DescribeClientQuotasResponseEntryEntity) (e QuotaEntity) {
	for _, p := range parts {
		e = append(e, QuotaPart{p.Type, deref(p.Name), p.Name == nil})
	}
	slices.SortFunc(e, func(a, b QuotaPart) int { return strings.Compare(a.Type, b.Type) })
	return e
}
