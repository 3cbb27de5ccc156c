package config

import (
	"cmp"
	"fmt"
	"slices"

	"loquat"
)

// Problem is one fault of a configuration.
type Problem struct {
	Path    string // such as providers.main.timeout
	Message string // what is wrong, what is allowed
	Warning bool   // it does not keep the server from starting

	more int // if not 0, the entry stands for this many problems that a list leaves out
}

// newProblem makes a problem whose texts are bounded, however long the key or the value is.
func newProblem(path, format string, args ...any) Problem {
	f := loquat.FieldError{Location: path, Message: fmt.Sprintf(format, args...)}.Clipped()
	return Problem{Path: f.Location, Message: f.Message}
}

// rest returns the entry that stands for n problems that a list leaves out.
func rest(n int, warning bool) Problem {
	what := "errors"
	if warning {
		what = "warnings"
	}
	return Problem{
		Path: "the rest", Message: fmt.Sprintf("has %d more %s, which are not listed; correct the listed ones first", n, what),
		Warning: warning, more: n,
	}
}

func (p Problem) String() string { return p.Path + ": " + p.Message }

// Count returns how many problems the entry stands for: 1, or all that its list leaves out.
func (p Problem) Count() int { return max(p.more, 1) }

// Failed reports whether any of the problems keeps the server from starting.
func Failed(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning })
}

// InOrder joins lists of problems and sorts them by place. The list has at most
// loquat.MaxFieldErrors errors and as many warnings; an entry at its end counts the others.
func InOrder(lists ...[]Problem) []Problem {
	problems := slices.Concat(lists...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	var out []Problem
	kept, more := map[bool]int{}, map[bool]int{} // by Warning
	for _, p := range problems {
		if p.more > 0 || kept[p.Warning] == loquat.MaxFieldErrors {
			more[p.Warning] += p.Count()
			continue
		}
		kept[p.Warning]++
		out = append(out, p)
	}
	for _, warning := range []bool{false, true} {
		if more[warning] > 0 {
			out = append(out, rest(more[warning], warning))
		}
	}
	return out
}

// problemList collects problems. Beyond loquat.MaxFieldErrors errors, and as many warnings, it
// only counts.
type problemList struct {
	unbounded        bool // keeps all, because the caller bounds them
	kept             []Problem
	errors, warnings int
}

func (l *problemList) fault(path, format string, args ...any) {
	if l.errors++; l.errors <= loquat.MaxFieldErrors || l.unbounded {
		l.kept = append(l.kept, newProblem(path, format, args...))
	}
}

func (l *problemList) warn(path, format string, args ...any) {
	if l.warnings++; l.warnings <= loquat.MaxFieldErrors || l.unbounded {
		p := newProblem(path, format, args...)
		p.Warning = true
		l.kept = append(l.kept, p)
	}
}

// list returns the problems, and entries that count the others.
func (l *problemList) list() []Problem {
	list := slices.Clone(l.kept)
	if n := l.errors - loquat.MaxFieldErrors; n > 0 && !l.unbounded {
		list = append(list, rest(n, false))
	}
	if n := l.warnings - loquat.MaxFieldErrors; n > 0 && !l.unbounded {
		list = append(list, rest(n, true))
	}
	return list
}
