package settings

import (
	"slices"
	"strings"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/ui"
)

// learnSecrets records which settings the elements call secret. From then on they are redacted,
// and no other plugin gets them.
func (r *Resolver) learnSecrets(elements []loquat.Object) {
	var learned config.Schema
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range elements {
		if !e.Bool("secret") {
			continue
		}
		for _, path := range []string{e.String("key"), strings.Join(ui.ConfigPath(e), ".")} {
			known := slices.ContainsFunc(r.secrets, func(f config.Field) bool { return f.Key == path })
			if path != "" && !known && len(r.secrets) < ui.MaxElements {
				field := config.Field{Key: path, Kind: config.Any, Secret: true}
				r.secrets, learned = append(r.secrets, field), append(learned, field)
			}
		}
	}
	if len(learned) > 0 {
		r.redactor.Add(r.config.Now().SecretsOf(learned))
		r.Invalidate()
	}
}

// secretSchema returns the schema of the plugins with the settings that elements call secret.
func (r *Resolver) secretSchema() config.Schema {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.schema, r.secrets)
}

// Redact returns an effective config with {"set": true} in place of each secret.
func (r *Resolver) Redact(cfg loquat.Object) loquat.Object {
	return r.config.Now().Redact(cfg, r.secretSchema())
}

// RedactOverrides returns the overrides of a session without the secrets within them.
func (r *Resolver) RedactOverrides(overrides loquat.Object) loquat.Object {
	return config.RedactObject(overrides, r.secretSchema())
}
