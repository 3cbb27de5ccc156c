package loquat

import "testing"

func TestRequestStatusEnded(t *testing.T) {
	for status, want := range map[RequestStatus]bool{
		StatusQueued: false, StatusRunning: false, StatusCompleted: true, StatusFailed: true, StatusCancelled: true,
	} {
		if status.Ended() != want {
			t.Errorf("%s.Ended() = %v", status, !want)
		}
	}
}

func TestSendStreamsByDefault(t *testing.T) {
	yes, no := true, false
	for stream, want := range map[*bool]bool{nil: true, &yes: true, &no: false} {
		if got := (Send{Stream: stream}).Streams(); got != want {
			t.Errorf("with stream %v it streams: %v", stream, got)
		}
	}
}
