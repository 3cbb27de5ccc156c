package chat

import (
	"loquat"
	"loquat/internal/store"
)

// The order of a request's events, and the function that publishes each. Events on one
// line share a transaction; increments share one with what waits for the same commit.
//
//	accepted    queueBehind      queue_changed, when the send is queued
//	started     prepareMessages  messages_deleted (delete_from), message_appended, checkpoint
//	            startRequest     request_started, in the transaction of prepareMessages; then what
//	                             steered, and queue_changed, if the send was queued
//	streamed    loop             assistant_message start, partial …, retry_scheduled: increments
//	phase end   sink.EndPhase    assistant_message end, final, checkpoint, tool_calls
//	tools       loop             tool_partial …: increments
//	tools end   sink.ToolResults tool_results, checkpoint; then the next phase streams
//	steered     takeSteers       message_appended, checkpoint, request_started, request_completed of each
//	                             send that steers, after tools end or request_started; then queue_changed
//	end         sink.EndPhase    assistant_message end, final, checkpoint, request_completed
//	abnormal    endRequest       what openStep.close publishes, error or request_cancelled, request_completed
//	rolled back endRequest       what openStep.rollBack publishes, request_cancelled, request_completed
//	never ran   cancelQueued     request_started, request_cancelled, request_completed, queue_changed
//
// openStep.close publishes assistant_message end for an open phase, then final and
// checkpoint for visible text, or tool_results and checkpoint for an open tool round.
// Both ends, in their own transaction, start the next queued send (startNext).

// publish puts events into the log, in this order.
func publish(tx *store.Tx, h *store.Head, q *store.Request, events ...loquat.Event) error {
	for _, e := range events {
		if _, err := tx.Publish(e, h, q); err != nil {
			return err
		}
	}
	return nil
}

// phaseEnd closes a streamed phase.
var phaseEnd = loquat.Event{Type: loquat.AssistantMessage, Phase: loquat.PhaseEnd}
