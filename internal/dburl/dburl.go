// Package dburl finds and hides the passwords in the URL of a database, also if the URL is
// written wrong: an error that repeats it must not show them.
package dburl

import (
	"net/url"
	"strings"
)

// hidden replaces a password.
const hidden = "***"

// URL is the URL of a database without its passwords.
type URL struct {
	Text      string   // the URL with *** for each password
	Passwords []string // as they are written, and as they are meant
	// Unescaped reports that the password has an @ or a /, or a ? after a /, that is not
	// percent-encoded. A driver then takes a part of the password for a host or a database.
	Unescaped bool
}

// Redact hides the passwords of a URL.
func Redact(text string) URL {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return URL{Text: text}
	}
	var out URL
	end, unescaped := userEnd(rest)
	out.Unescaped = unescaped
	out.Text = scheme + "://"
	if end >= 0 {
		user, password, given := strings.Cut(rest[:end], ":")
		if given {
			out.found(password, url.PathUnescape)
			user += ":" + hidden
		}
		out.Text += user
		rest = rest[end:]
	}
	before, query, found := strings.Cut(rest, "?")
	out.Text += before
	if found {
		out.Text += "?" + out.query(query)
	}
	return out
}

// userEnd returns the index of the @ that ends the user and the password, or -1. The first @
// ends them, unless a / is before it; a later @, or one after a /, belongs to a password
// that is not escaped.
func userEnd(rest string) (end int, unescaped bool) {
	end = strings.IndexAny(rest, "@/")
	if end >= 0 && rest[end] == '/' {
		if !strings.Contains(rest[:end], ":") {
			return -1, false // the URL has no password
		}
		end = -1
	}
	query := len(rest)
	if i := strings.IndexByte(rest[end+1:], '?'); i >= 0 {
		query = end + 1 + i
	}
	last := strings.LastIndexByte(rest[:query], '@')
	for _, field := range strings.Split(rest[query:], "&") {
		if name, _, _ := strings.Cut(field, "="); strings.Contains(name, "@") { // no name of a parameter
			last = strings.LastIndexByte(rest, '@')
		}
	}
	return max(end, last), last > end
}

// query hides the passwords among the parameters of a URL.
func (u *URL) query(query string) string {
	fields := strings.Split(query, "&")
	for i, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		name, err := url.QueryUnescape(key)
		if err != nil || strings.Contains(strings.ToLower(name), "password") {
			u.found(value, url.QueryUnescape)
			fields[i] = key + "=" + hidden
		}
	}
	return strings.Join(fields, "&")
}

func (u *URL) found(password string, unescape func(string) (string, error)) {
	if password == "" {
		return
	}
	u.Passwords = append(u.Passwords, password)
	if plain, err := unescape(password); err == nil && plain != password {
		u.Passwords = append(u.Passwords, plain)
	}
}
