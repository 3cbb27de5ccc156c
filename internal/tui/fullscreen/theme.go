package fullscreen

import (
	"charm.land/lipgloss/v2"

	"loquat/internal/tui/markdown"
)

// The themes. Auto asks the terminal whether its background is dark.
const (
	themeAuto  = "auto"
	themeDark  = "dark"
	themeLight = "light"
	themeNone  = "none"
)

// ThemeNames returns the names of the themes, the default first.
func ThemeNames() []string { return []string{themeAuto, themeDark, themeLight, themeNone} }

// theme is the set of styles. What a colour says is always said by a sign or a word, too.
type theme struct {
	name     string
	markdown markdown.Style

	plain, dim, strong, title       lipgloss.Style
	user, assistant, tool, selected lipgloss.Style
	failure, warning, success       lipgloss.Style
}

// newTheme returns the theme with a name. auto is dark until the terminal has answered.
func newTheme(name string) theme {
	style := lipgloss.NewStyle
	t := theme{name: name, plain: style(), dim: style().Faint(true), strong: style().Bold(true), title: style().Bold(true), selected: style().Reverse(true)}
	colored := func(dark, light string) lipgloss.Style {
		if name == themeLight {
			return style().Foreground(lipgloss.Color(light))
		}
		return style().Foreground(lipgloss.Color(dark))
	}
	switch name {
	case themeNone:
		t.markdown = markdown.Plain
		t.user, t.assistant, t.tool = t.strong, t.strong, t.plain
		t.failure, t.warning, t.success = t.strong, t.plain, t.plain
		return t
	case themeLight:
		t.markdown = markdown.Light
	default:
		t.markdown = markdown.Dark
	}
	t.dim = colored("245", "243")
	t.user, t.assistant, t.tool = colored("117", "25").Bold(true), colored("157", "28").Bold(true), colored("110", "24")
	t.failure, t.warning, t.success = colored("203", "160").Bold(true), colored("221", "130"), colored("114", "28")
	return t
}
