package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loquat"
)

// DefaultRole is the role of tokens of scope user that have no other, if the configuration has it.
const DefaultRole = "user"

// Role says what those who have it may use, and how much. The zero Role allows everything.
type Role struct {
	Agents  *[]string `json:"agents"`  // agent_ids; nil: all
	Models  *[]string `json:"models"`  // models, provider_id/model or provider_id/*; nil: all
	Plugins *[]string `json:"plugins"` // names of plugins, apart from providers; nil: all
	Bounds  Bounds    `json:"bounds"`
}

// Bounds limit what one user, or one token without a user, may use. 0 means no bound.
type Bounds struct {
	RequestsPerMinute int   `json:"requests_per_minute"`
	RunningRequests   int   `json:"running_requests"` // with those that wait in queues
	TokensPerDay      int64 `json:"tokens_per_day"`   // a day of UTC
	Sessions          int   `json:"sessions"`
	StorageBytes      int64 `json:"storage_bytes"` // of messages and images
}

// AllowsAgent reports whether the role may use an agent.
func (r Role) AllowsAgent(agentID string) bool {
	return r.Agents == nil || slices.Contains(*r.Agents, agentID)
}

// AllowsModel reports whether the role may use a model of a provider.
func (r Role) AllowsModel(providerID, model string) bool {
	return r.Models == nil || slices.ContainsFunc(*r.Models, func(allowed string) bool {
		return allowed == model || allowed == providerID+"/"+model || allowed == providerID+"/*"
	})
}

// AllowsPlugin reports whether the role may use a plugin.
func (r Role) AllowsPlugin(name string) bool {
	return r.Plugins == nil || slices.Contains(*r.Plugins, name)
}

// maxRoles bounds the roles of a configuration.
const maxRoles = 100

// checkRoles reports all problems of roles.
func checkRoles(raw json.RawMessage) error {
	roles := map[string]json.RawMessage{}
	mustDecode(raw, &roles)
	var faults []string
	if len(roles) > maxRoles {
		faults = append(faults, fmt.Sprintf("has %d entries; must have at most %d", len(roles), maxRoles))
	}
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("entry %q ", loquat.Clip(name, loquat.Excerpt))+fmt.Sprintf(format, args...))
		}
		var r Role
		d := json.NewDecoder(bytes.NewReader(roles[name]))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			fault("is wrong: %s; must have agents, models, plugins (lists of strings) and bounds (requests_per_minute, running_requests, tokens_per_day, sessions, storage_bytes: integers)", strings.TrimPrefix(err.Error(), "json: "))
			continue
		}
		if err := loquat.CheckRole("its name", name); err != nil {
			fault("has a name that cannot be used; must have 1 to %d letters, digits, - and _", loquat.MaxRole)
		}
		b := r.Bounds
		if b.RequestsPerMinute < 0 || b.RunningRequests < 0 || b.TokensPerDay < 0 || b.Sessions < 0 || b.StorageBytes < 0 {
			fault("has a bound below 0; must be 0 (no bound) or more")
		}
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// checkRolesUsed checks that the roles of tokens, and the agents of roles, exist.
func (c *Config) checkRolesUsed(ch *checker) {
	for i, t := range c.Server.AuthTokens {
		if _, ok := c.Server.Roles[t.Role]; t.Role != "" && !ok {
			ch.fault(fmt.Sprintf("server.auth_tokens[%d].role", i), "is %q, which server.roles does not have", loquat.Clip(t.Role, loquat.Excerpt))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Server.Roles)) {
		if r := c.Server.Roles[name]; r.Agents != nil {
			for _, id := range *r.Agents {
				if !c.HasAgent(id) && id != loquat.DefaultAgent {
					ch.warn("server.roles", "names in role %q the agent %q, which does not exist", name, loquat.Clip(id, loquat.Excerpt))
				}
			}
		}
	}
}
