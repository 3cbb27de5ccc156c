package config

import "sync/atomic"

// Live is the configuration that a running server uses. A reload replaces it as a whole. Code that
// needs several values which belong together calls Now once.
type Live struct{ now atomic.Pointer[Config] }

// NewLive returns a Live with a first configuration.
func NewLive(c *Config) *Live {
	l := &Live{}
	l.Set(c)
	return l
}

// Now returns the configuration in use, which must not be changed.
func (l *Live) Now() *Config { return l.now.Load() }

// Set replaces the configuration.
func (l *Live) Set(c *Config) { l.now.Store(c) }

// Derived returns a function that computes a value from the configuration in use, once for each
// configuration.
func Derived[T any](l *Live, compute func(*Config) T) func() T {
	type derived struct {
		from  *Config
		value T
	}
	var last atomic.Pointer[derived]
	return func() T {
		now := l.Now()
		if d := last.Load(); d != nil && d.from == now {
			return d.value
		}
		d := &derived{now, compute(now)}
		last.Store(d)
		return d.value
	}
}
