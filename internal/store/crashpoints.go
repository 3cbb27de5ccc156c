//go:build crashpoints

package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// crashAt is LOQUAT_CRASH_AT: before:N or after:N kills the process just before or just after
// the Nth commit.
var crashAt = os.Getenv("LOQUAT_CRASH_AT")

// crashCommits counts the commits that were begun. The committer owns it.
var crashCommits int

// beforeCommit is called when a batch is written but not committed.
func beforeCommit() {
	crashCommits++
	crashIf("before")
}

// afterCommit is called when a batch is on disk and no caller knows yet.
func afterCommit() { crashIf("after") }

func crashIf(point string) {
	at, n, _ := strings.Cut(crashAt, ":")
	if at != point || n != strconv.Itoa(crashCommits) {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("store: this process could not kill itself: %v", err))
	}
	select {} // nothing else may happen until the kill arrives
}
