package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"loquat/internal/strictjson"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"loquat"
)

// maxDelay bounds mistyped delays, and keeps each within a time.Duration.
const maxDelay = 7 * 24 * time.Hour

const delaysAllowed = `must be seconds from 0 to 604800, as [1, 2.5] or "1, 2.5"`

// ParseDelays reads a value of kind Delays. An absent value is an empty list.
func ParseDelays(raw json.RawMessage) ([]time.Duration, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	entries, err := delayEntries(raw)
	if err != nil {
		return nil, err
	}
	delays := make([]time.Duration, 0, len(entries))
	for i, entry := range entries {
		seconds, ok := parseSeconds(entry)
		if !ok {
			return nil, fmt.Errorf("entry %d is %s; %s", i, loquat.Clip(entry, loquat.Excerpt), delaysAllowed)
		}
		delays = append(delays, time.Duration(math.Round(seconds*float64(time.Second))))
	}
	return delays, nil
}

// delayEntries splits either notation into the texts of its numbers. A string in a list
// keeps its quotes, so it is not a valid number.
func delayEntries(raw json.RawMessage) ([]string, error) {
	var entries []string
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("is not a list; %s", delaysAllowed)
		}
		for _, v := range list {
			entries = append(entries, string(v))
		}
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("is not a string; %s", delaysAllowed)
		}
		if strings.TrimSpace(text) == "" {
			return nil, nil
		}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				part = "empty"
			}
			entries = append(entries, part)
		}
	default:
		return nil, fmt.Errorf("is %s; %s", strictjson.Kind(raw), delaysAllowed)
	}
	return entries, nil
}

func parseSeconds(s string) (float64, bool) {
	if strings.ContainsAny(s, "xX_") { // hexadecimal is for programs
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && v >= 0 && v <= maxDelay.Seconds()
}

// ParseDelayMap reads a value of kind DelayMap. An absent value is an empty map.
func ParseDelayMap(raw json.RawMessage) (map[int][]time.Duration, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var byCode loquat.Object
	if raw[0] != '{' || json.Unmarshal(raw, &byCode) != nil {
		return nil, fmt.Errorf("is %s; must be an object of HTTP status code to delays", strictjson.Kind(raw))
	}
	delays := make(map[int][]time.Duration, len(byCode))
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(byCode)) {
		code, list, err := parseStatusDelays(key, byCode[key])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", loquat.Clip(key, loquat.Excerpt), err))
			continue
		}
		delays[code] = list
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return delays, nil
}

func parseStatusDelays(key string, raw json.RawMessage) (int, []time.Duration, error) {
	code, err := strconv.Atoi(key)
	if err != nil || len(key) != 3 || code < 100 || code > 599 {
		return 0, nil, errors.New("is not an HTTP status code; must be 100 to 599")
	}
	if code == 429 {
		return 0, nil, errors.New("cannot be listed here; use the key rate_limit_retry_delays_seconds")
	}
	if isNull(raw) {
		return code, nil, nil
	}
	list, err := ParseDelays(raw)
	return code, list, err
}
