// The fold of a session: its snapshot with the events after it applied.

export const titleOf = (session) => session.metadata?.title || `Session ${session.session_id.slice(-8)}`;

// Fold applies a session's events to its snapshot.
export class Fold {
  constructor(snapshot) {
    const { session_id, agent_id, created_at, updated_at, metadata } = snapshot;
    this.id = session_id;
    this.about = { session_id, agent_id, created_at, updated_at, metadata };
    this.messages = snapshot.messages;
    this.position = snapshot.cursor_event_id;
    this.active = snapshot.active_request_id || "";
    this.draft = null;
    this.remark = "";
  }

  get title() { return titleOf(this.about); }

  // session returns the object that the paths of conditions and data refer to.
  get session() { return { ...this.about, messages: this.messages }; }

  // reply returns the last assistant message, if there is one.
  get reply() { return this.messages.findLast((m) => m.role === "assistant"); }

  // apply applies the next event. It returns false for an event of another session, or one
  // that was applied before.
  apply(e) {
    if (e.session_id !== this.id || e.event_id <= this.position) return false;
    this.position = e.event_id;
    switch (e.type) {
      case "message_appended": this.add([e.message]); break;
      case "final": case "tool_results": this.add(e.messages || []); break;
      case "message_modified": this.modify(e); break;
      case "messages_deleted": this.messages = this.messages.filter((_, i) => !e.indices.includes(i)); break;
      case "partial": this.extend(e); break;
      case "request_started":
        if (e.steered_into) break; // it has ended: that request took in its message
        this.active = e.request_id;
        this.remark = "";
        break;
      case "retry_scheduled": this.remark = `The backend failed; trying again in ${Math.ceil(e.delay_seconds)} s.`; break;
      case "error": this.remark = e.detail; break;
      case "request_completed":
        if (this.active === e.request_id) this.active = "";
        if (this.draft?.request === e.request_id) this.draft = null;
        break;
      case "checkpoint": this.describe(e); break;
      case "session_deleted": this.messages = []; this.draft = null; this.remark = "This session was deleted."; break;
    }
    return true;
  }

  describe({ agent_id = this.about.agent_id, metadata = this.about.metadata, timestamp }) {
    this.about = { ...this.about, agent_id, metadata, updated_at: timestamp };
  }

  add(messages) {
    this.draft = null;
    for (const m of messages) {
      const i = this.messages.findIndex((old) => old.id === m.id);
      if (i < 0) this.messages.push(m);
      else this.messages[i] = m;
    }
  }

  modify(e) {
    const old = this.messages[e.index];
    if (old) this.messages[e.index] = e.message || { ...old, content: e.content };
  }

  extend(e) {
    const meta = e.message.metadata || {};
    if (this.draft?.request !== e.request_id || meta.stream_restarted) this.draft = { request: e.request_id, content: "", metadata: {} };
    this.draft.content += e.message.content;
    for (const field of ["reasoning_content", "reasoning"]) {
      if (typeof meta[field] === "string") this.draft.metadata[field] = (this.draft.metadata[field] || "") + meta[field];
    }
    this.remark = "";
  }
}
