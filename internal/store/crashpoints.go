//go:build crashpoints

package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// crashAt is LOQUAT_CRASH_AT: before:N or after:N kills the process just before or
// just after the N-th commit that reaches that point.
var crashAt = os.Getenv("LOQUAT_CRASH_AT")

// crashCommits counts the commits that were begun; it belongs to the committer.
var crashCommits int

// beforeCommit is called when all of a batch is written and nothing is committed.
func beforeCommit() {
	crashCommits++
	crashIf("before")
}

// afterCommit is called when the batch is on disk and nobody was told.
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
	select {} // the kill may arrive a moment later: until then nothing happens
}
