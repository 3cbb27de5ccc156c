package ui

import (
	"encoding/json"
	"strconv"
	"strings"
)

// equal reports whether two JSON values are equal. It compares numbers by value and objects
// regardless of the order of their keys. It does not convert values to another type.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, v := range a {
			if w, ok := b[key]; !ok || !equal(v, w) {
				return false
			}
		}
		return true
	}
	x, isNumber := number(a)
	y, areNumbers := number(b)
	if isNumber && areNumbers {
		return x == y || parseDecimal(x) == parseDecimal(y)
	}
	switch b.(type) {
	case []any, map[string]any: // cannot be compared with ==
		return false
	}
	return a == b
}

func number(v any) (literal string, ok bool) {
	switch v := v.(type) {
	case json.Number:
		return v.String(), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}

// decimal is the canonical form of a number: digits without zeros at either end, times ten
// to the power of exponent.
type decimal struct {
	negative bool
	digits   string
	exponent int64
	beyond   string // an exponent too large for an int64, as it was written
}

// parseDecimal parses a JSON number without losing digits.
func parseDecimal(literal string) decimal {
	var d decimal
	literal, d.negative = strings.CutPrefix(literal, "-")
	mantissa, power := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, power = literal[:i], literal[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	d.digits = strings.TrimLeft(digits, "0")
	if d.digits == "" { // zero has no sign and no exponent
		return decimal{}
	}
	d.exponent = int64(len(whole) - len(digits))
	if power != "" {
		n, err := strconv.ParseInt(power, 10, 64)
		if sum := d.exponent + n; err == nil && (sum > d.exponent) == (n > 0) {
			d.exponent = sum
		} else {
			d.beyond = power
		}
	}
	return d
}
