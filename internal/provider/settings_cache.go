package provider

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync/atomic"

	"loquat"
)

const (
	maxCached       = 32
	maxCachedConfig = 32 << 10 // bytes of a config; larger ones are read each time
)

// settingsCache has the settings that were read last. Most requests have one of a few configs, and to
// compare two configs costs much less than to read one.
type settingsCache struct{ list atomic.Pointer[[]readConfig] }

type readConfig struct {
	config   loquat.Object
	settings settings
	version  any // of the secrets that the settings have besides their own
}

func (r *settingsCache) find(c loquat.Object, version any) (settings, bool) {
	for _, known := range r.all() {
		if known.version == version && maps.EqualFunc(known.config, c, equalRaw) {
			return known.settings, true
		}
	}
	return settings{}, false
}

// add keeps the settings of a config, which callers may change afterwards. Of two calls at once, one may have no effect.
func (r *settingsCache) add(c loquat.Object, s settings, version any) {
	if c.Size() > maxCachedConfig {
		return
	}
	list := r.all()
	next := append([]readConfig{{c.Clone(), s, version}}, list[:min(len(list), maxCached-1)]...)
	r.list.Store(&next)
}

func (r *settingsCache) all() []readConfig {
	if list := r.list.Load(); list != nil {
		return *list
	}
	return nil
}

func equalRaw(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
