package readable

import "strings"

// Fence returns the marker of the fence of code that a line opens, and the text behind it. The marker is "" if the line
// opens none: a fence of backticks has no backtick behind them.
func Fence(line string) (marker, info string) {
	line = strings.TrimSpace(line)
	for _, char := range []string{"`", "~"} {
		info = strings.TrimLeft(line, char)
		if n := len(line) - len(info); n >= 3 && (char == "~" || !strings.Contains(info, char)) {
			return line[:n], strings.TrimSpace(info)
		}
	}
	return "", ""
}

// EndsFence reports whether a line ends the fence with a marker: by as many of its characters, or more, and nothing else.
func EndsFence(line, marker string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, marker) && strings.Trim(line, marker[:1]) == ""
}

// OpenFence returns the line that ends the fence that a text leaves open, or "". It is indented as the opening one, which
// may be in a list.
func OpenFence(text string) (end string) {
	open := ""
	for line := range strings.SplitSeq(text, "\n") {
		if open != "" {
			if EndsFence(line, open) {
				open, end = "", ""
			}
		} else if open, _ = Fence(line); open != "" {
			end = line[:strings.Index(line, open)] + open
		}
	}
	return end
}
