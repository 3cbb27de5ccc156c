package auth_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"loquat"
)

// modelCode is the model of a pairing code.
type modelCode struct {
	code  string
	until time.Time
	wrong int
	used  bool
}

// TestModel compares random steps, including restarts, with a model: a list of the made
// credentials and their states.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		// The generators of rapid must be created outside the synctest bubble.
		steps := rapid.SliceOfN(rapid.IntRange(0, 1<<30), 1, 60).Draw(r, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = runModel(t, steps) })
		if err != nil {
			r.Fatal(err)
		}
	})
}

func runModel(t *testing.T, steps []int) error {
	m := newMemory()
	k := open(t, m)
	var codes []*modelCode
	keys := map[string]string{} // secret to id: what is good
	lost := map[string]bool{}   // secrets that were
	for _, step := range steps {
		pick := step / 8
		switch step % 8 {
		case 0:
			if c, err := k.Pair(t.Context(), "", "", ""); err == nil {
				codes = append(codes, &modelCode{code: c.Code, until: c.ExpiresAt})
			}
		case 1, 2: // a claim, right or wrong
			if len(codes) == 0 {
				continue
			}
			c := codes[pick%len(codes)]
			good := !c.used && c.wrong < 5 && time.Now().Before(c.until)
			if step%8 == 2 && pick%3 > 0 {
				_, _, err := k.Claim(t.Context(), c.code[:5]+"ZZZZZZZZZZ", "x", here)
				if !refused(err) {
					return fmt.Errorf("a wrong secret of %+v: %v", c, err)
				}
				c.wrong++
				time.Sleep(time.Minute) // or the address would be held up
				continue
			}
			d, secret, err := k.Claim(t.Context(), c.code, "x", here)
			if (err == nil) != good {
				return fmt.Errorf("a claim of %+v at %s: %v", c, time.Now(), err)
			}
			if good {
				c.used, keys[secret] = true, d.ID
			} else {
				time.Sleep(time.Minute)
			}
		case 3:
			id, secret := makeToken(t, k, loquat.NewToken{Name: "x"})
			keys[secret] = id
		case 4, 5: // an end
			if len(keys) == 0 {
				continue
			}
			secret := slices.Sorted(maps.Keys(keys))[pick%len(keys)]
			if k.RevokeToken(t.Context(), keys[secret]) != nil && k.RemoveDevice(t.Context(), keys[secret], "") != nil {
				return fmt.Errorf("%s cannot be ended", keys[secret])
			}
			delete(keys, secret)
			lost[secret] = true
		case 6:
			k = open(t, m)
		case 7:
			time.Sleep(time.Duration(pick%200) * time.Second)
		}
		if got := len(k.Grants()); got != len(keys) {
			return fmt.Errorf("%d keys are good, want %d", got, len(keys))
		}
	}
	for secret, id := range keys {
		if p, err := k.Authenticate(t.Context(), secret, here); err != nil || p.ID != id {
			return fmt.Errorf("the key %s is %v, %v", id, p, err)
		}
	}
	for secret := range lost {
		_, err := k.Authenticate(t.Context(), secret, here)
		if !refused(err) {
			return fmt.Errorf("a key that was ended: %v", err)
		}
	}
	return nil
}

func refused(err error) bool { return loquat.CodeOf(err) == loquat.CodeUnauthorized }
