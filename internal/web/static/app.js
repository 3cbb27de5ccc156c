// The web client. What is on the page is a fold of what the server tells: a snapshot
// of the chosen session, then its events. Texts go in as textContent, never as markup.

import { call } from "./api.js";
import { Fold, titleOf } from "./fold.js";

const byId = (id) => document.getElementById(id);
const page = {
  state: byId("state"), stateText: byId("state-text"), about: byId("about"), sessions: byId("sessions"),
  title: byId("title"), transcript: byId("transcript"), notice: byId("notice"),
  composer: byId("composer"), content: byId("content"), stop: byId("stop"),
};

const silence = 40_000; // heartbeats come every 15 s: after this the line is dead

let source = null;  // the stream of all sessions
let lastId = "";    // of the last event that it brought
let deadline = 0;   // timer of the silence
let chosen = null;  // the fold of the session that is shown
let waiting = null; // events that came while a snapshot is loaded

// The server.

function guarded(work) {
  return async (...args) => {
    page.notice.hidden = true;
    try {
      return await work(...args);
    } catch (err) {
      page.notice.textContent = err.message;
      page.notice.hidden = false;
    }
  };
}

async function showServer() {
  const [version, agents] = await Promise.all([call("GET", "/version"), call("GET", "/agents")]);
  page.about.textContent = [`Loquat ${version.version}`, ...agents.agents.map((a) => `${a.agent_id}: ${a.model || a.provider}`)].join(" · ");
  try {
    await call("GET", "/readyz");
  } catch (err) {
    showState("lost", err.message);
  }
}

function showState(state, text) {
  page.state.dataset.state = state;
  page.stateText.textContent = text;
}

// The stream.

function connect() {
  source?.close();
  const mine = source = new EventSource("/events/stream?session=omit" + (lastId ? `&since_id=${lastId}` : ""));
  const heard = () => {
    clearTimeout(deadline);
    deadline = setTimeout(connect, silence);
  };
  heard();
  mine.onopen = () => {
    heard();
    showState("live", "Live");
    reload();
  };
  mine.onmessage = (e) => {
    heard();
    lastId = e.lastEventId;
    receive(JSON.parse(e.data));
  };
  mine.addEventListener("heartbeat", heard);
  mine.addEventListener("gone", () => {
    lastId = "";
    connect();
  });
  mine.onerror = () => {
    if (mine !== source) return;
    showState("lost", "Connection lost, trying again…");
    if (mine.readyState === EventSource.CLOSED) {
      clearTimeout(deadline);
      deadline = setTimeout(connect, 3000);
    }
  };
}

const reload = guarded(async () => {
  await Promise.all([showServer(), choose(location.hash.slice(1)).finally(showSessions)]);
});

let listTimer = 0;
function receive(event) {
  if (["session_created", "session_deleted", "checkpoint", "request_started", "request_completed"].includes(event.type)) {
    clearTimeout(listTimer);
    listTimer = setTimeout(guarded(showSessions), 200);
  }
  if (waiting) waiting.push(event);
  else if (chosen?.apply(event)) draw();
}

// The sessions.

async function showSessions() {
  const { sessions } = await call("GET", "/sessions?limit=100");
  page.sessions.replaceChildren(...sessions.map((s) => {
    const link = element("a", s.active_request_id ? "busy" : "", titleOf(s));
    link.href = `#${s.session_id}`;
    if (s.session_id === chosen?.id) link.setAttribute("aria-current", "true");
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
}

// choose loads a snapshot and what happened since its cursor; the stream goes on from
// there. Events that came meanwhile wait, and those known already are skipped.
let choosing = 0;
async function choose(id) {
  const turn = ++choosing;
  waiting = [];
  let next = null;
  try {
    if (id) {
      next = new Fold(await call("GET", `/sessions/${encodeURIComponent(id)}`));
      for (let more = true; more;) {
        const { events } = await call("GET", `/events?session=omit&limit=5000&session_id=${encodeURIComponent(id)}&since_id=${next.position}`);
        events.forEach((e) => next.apply(e));
        more = events.length > 0;
      }
    }
  } finally {
    if (turn === choosing) {
      chosen = next;
      if (chosen) waiting.forEach((e) => chosen.apply(e));
      waiting = null;
      draw();
    }
  }
}

// The page.

let drawing = false;
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    paint();
  });
}

const painted = new Map(); // message to its element: only what changed is made anew
function paint() {
  const list = page.transcript;
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  const items = (chosen?.messages || []).map((m) => {
    if (!painted.has(m)) painted.set(m, messageItem(m));
    return painted.get(m);
  });
  for (const m of painted.keys()) if (!chosen?.messages.includes(m)) painted.delete(m);
  if (chosen?.draft) items.push(messageItem({ role: "assistant", content: chosen.draft.content, metadata: { reasoning: chosen.draft.reasoning } }));
  if (chosen?.remark) items.push(element("li", "failure", chosen.remark));
  list.replaceChildren(...items);
  list.setAttribute("aria-busy", String(Boolean(chosen?.active)));
  if (atEnd) list.scrollTop = list.scrollHeight;
  page.title.textContent = chosen ? chosen.title : "No session chosen";
  page.stop.hidden = !chosen?.active;
}

function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.textContent = text;
  return e;
}

function folded(summary, text) {
  const details = document.createElement("details");
  details.append(element("summary", "", summary), element("div", "text", text));
  return details;
}

function messageItem(m) {
  const meta = m.metadata || {};
  const item = document.createElement("li");
  item.className = m.role;
  item.append(element("div", "role", meta.tool_name ? `${m.role}: ${meta.tool_name}` : m.role));
  const reasoning = meta.reasoning_content || meta.reasoning;
  if (typeof reasoning === "string" && reasoning) item.append(folded("Reasoning", reasoning));
  const shown = meta.display?.type === "text" ? meta.display.content : m.content;
  if (m.role === "tool") item.append(folded(meta.is_error ? "Failed" : "Result", shown));
  else item.append(element("div", "text", shown));
  for (const c of meta.tool_calls || []) item.append(folded(`Calls ${c.function?.name}`, c.function?.arguments || ""));
  if (meta.incomplete) item.append(element("div", "role", `Ends early: ${meta.incomplete}`));
  return item;
}

// The user.

byId("new").onclick = guarded(async () => {
  const session = await call("POST", "/sessions", {});
  location.hash = session.session_id;
  page.content.focus();
});

page.composer.onsubmit = (e) => {
  e.preventDefault();
  send();
};

const send = guarded(async () => {
  const content = page.content.value;
  if (!content.trim()) return;
  const id = chosen?.id || (await call("POST", "/sessions", {})).session_id;
  await call("POST", `/sessions/${id}/send`, { content, on_busy: "queue" });
  page.content.value = "";
  location.hash = id;
});

page.content.onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    page.composer.requestSubmit();
  }
};

page.stop.onclick = guarded(async () => {
  if (chosen?.active) await call("POST", `/requests/${chosen.active}/cancel`);
});

addEventListener("hashchange", guarded(async () => {
  await choose(location.hash.slice(1));
  await showSessions();
}));

connect();
