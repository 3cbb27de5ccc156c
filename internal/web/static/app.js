// The web client. The page shows a fold: the snapshot of the chosen session, then the
// session's events. Texts are set as textContent, never as markup.

import { call } from "./api.js";
import { Attachments } from "./attachments.js";
import { pairBy, signedIn, signOut, unlimited } from "./auth.js";
import { element, folded, listOf } from "./dom.js";
import { shown, textOf } from "./elements.js";
import { Fold, titleOf } from "./fold.js";
import { reasoningOf, remarksOf } from "./message.js";
import { ModelPicker } from "./models.js";
import { actions, images, listFields, loadElements, nothing, override, pathOf, texts } from "./session.js";
import { Settings, settable } from "./settings.js";

const byId = (id) => document.getElementById(id);
const page = {
  state: byId("state"), stateText: byId("state-text"), about: byId("about"), sessions: byId("sessions"),
  more: byId("more"), signOut: byId("sign-out"), said: byId("said"),
  title: byId("title"), actions: byId("actions"), settings: byId("open-settings"), transcript: byId("transcript"),
  status: byId("status"), notice: byId("notice"), composer: byId("composer"), nodes: byId("nodes"), content: byId("content"), stop: byId("stop"),
};

const silence = 40_000; // ms; heartbeats come every 15 s, so a longer silence means a lost connection

let source = null;  // the stream of all sessions
let lastId = "";    // id of the stream's last event
let deadline = 0;   // timer that reconnects after a silence
let chosen = null;  // the fold of the session on the page
let ui = nothing;   // the elements and values of that session
let fields = [];    // the elements that the list shows for each session
let waiting = null; // events that arrived while a snapshot is loaded

// The server.

// notifying wraps work so that the user sees its error. guarded also hides the last notice.
const notifying = (work) => async (...args) => {
  try {
    return await work(...args);
  } catch (err) {
    notify(err.message, "fault");
  }
};

const guarded = (work) => (...args) => {
  page.notice.hidden = true;
  return notifying(work)(...args);
};

function notify(text, kind) {
  page.notice.className = kind;
  page.notice.textContent = text;
  page.notice.hidden = false;
}

async function showServer() {
  const [version, agents, found] = await Promise.all([call("GET", "/version"), call("GET", "/agents"), listFields()]);
  fields = found;
  page.about.textContent = [`Loquat ${version.version}`, ...agents.agents.map((a) => `${a.agent_id}: ${a.model || a.provider}`)].join(" · ");
  try {
    await call("GET", "/readyz");
    if (unlimited()) showNodes((await call("GET", "/nodes")).nodes);
  } catch (err) {
    showState("lost", err.message);
  }
}

// showNodes lists the servers that share the sessions, if there are several.
function showNodes(nodes) {
  page.nodes.hidden = nodes.length < 2;
  page.nodes.textContent = `${nodes.length} servers: ` + nodes.map((n) => n.name + (n.self ? " (this one)" : "")).join(" · ");
}

function showState(state, text) {
  page.state.dataset.state = state;
  page.stateText.textContent = text;
}

// The stream.

function connect() {
  source?.close();
  const mine = source = new EventSource("/events/stream?session=omit" + (lastId ? `&since_id=${lastId}` : ""));
  const restartTimer = () => {
    clearTimeout(deadline);
    deadline = setTimeout(connect, silence);
  };
  restartTimer();
  mine.onopen = () => {
    restartTimer();
    showState("live", "Live");
    page.signOut.hidden = !signedIn();
    reload();
  };
  mine.onmessage = (e) => {
    restartTimer();
    lastId = e.lastEventId;
    receive(JSON.parse(e.data));
  };
  mine.addEventListener("heartbeat", restartTimer);
  mine.addEventListener("gone", () => {
    lastId = "";
    connect();
  });
  mine.onerror = () => {
    if (mine !== source) return;
    showState("lost", "Connection lost, trying again…");
    if (mine.readyState === EventSource.CLOSED) {
      clearTimeout(deadline);
      // EventSource does not say why the server refused it. This call finds out, and asks
      // the user for a token if one is needed.
      call("GET", "/version").then(connect, () => { deadline = setTimeout(connect, 3000); });
    }
  };
}

const reload = guarded(async () => {
  await Promise.all([showServer(), choose(location.hash.slice(1))]).finally(showSessions);
});

let listTimer = 0;
function receive(event) {
  if (["session_created", "session_deleted", "checkpoint", "request_started", "request_completed"].includes(event.type)) {
    clearTimeout(listTimer);
    listTimer = setTimeout(notifying(showSessions), 200);
  }
  if (waiting) waiting.push(event);
  else if (chosen?.apply(event)) {
    if (ui.wide && event.type !== "partial") stale = true;
    if (event.type === "final") page.said.textContent = chosen.reply?.content ?? "";
    if (event.type === "checkpoint" && (event.metadata || event.agent_id)) refresh();
    draw();
  }
}

// The sessions.

let pages = 1; // number of pages that the list shows
async function showSessions() {
  const sessions = [];
  let next = "/sessions?limit=100";
  for (let i = 0; i < pages && next; i++) {
    const found = await call("GET", next);
    sessions.push(...found.sessions);
    next = found.next_page_token && `/sessions?limit=100&page_token=${encodeURIComponent(found.next_page_token)}`;
  }
  page.more.hidden = !next;
  page.sessions.replaceChildren(...sessions.map((s) => {
    const link = element("a", s.active_request_id ? "busy" : "", titleOf(s));
    link.href = `#${s.session_id}`;
    if (s.session_id === chosen?.id) link.setAttribute("aria-current", "true");
    const context = { session: s };
    for (const e of shown(fields, "session_list_field", context)) {
      const text = textOf(e, context);
      if (text) link.append(element("span", "quiet", e.label ? `${e.label}: ${text}` : text));
    }
    return element("li", "", undefined, link);
  }));
}

// choose loads a session's snapshot and the events after its cursor. Events that the stream
// delivers meanwhile are applied afterwards; the fold skips those that it already has.
let choosing = 0;
async function choose(id) {
  const turn = ++choosing;
  waiting = [];
  let next = null;
  try {
    if (id) {
      next = new Fold(await call("GET", pathOf(id)));
      for (let more = true; more;) {
        const { events } = await call("GET", `/events?session=omit&limit=5000&session_id=${encodeURIComponent(id)}&since_id=${next.position}`);
        events.forEach((e) => next.apply(e));
        more = events.length > 0;
      }
    }
  } finally {
    if (turn === choosing) {
      if (chosen?.id !== next?.id) leave();
      chosen = next;
      if (chosen) waiting.forEach((e) => chosen.apply(e));
      waiting = null;
      draw();
    }
  }
  if (turn === choosing) await refresh();
}

// leave clears everything on the page that belongs to the previous session.
function leave() {
  ui = nothing;
  page.said.textContent = "";
  attachments.clear();
  settings.dialog.close();
}

// refresh loads the session's elements and settings again.
let refreshing = 0;
const refresh = notifying(async () => {
  const turn = ++refreshing;
  const found = chosen ? await loadElements(chosen.id) : nothing;
  if (turn !== refreshing) return;
  ui = found;
  stale = true;
  if (settings.dialog.open) settings.draw();
  draw();
  await models.show();
});

// context returns the object that the paths of conditions and data refer to.
const context = (message) => ({ session: chosen?.session, message, config: ui.config });

async function write(key, value) {
  await override(chosen.id, key, value);
  await refresh();
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

const painted = new Map(); // message to its item and footer, to rebuild only what changed
let stale = false;         // the footers have to be compared again
function paint() {
  const list = page.transcript;
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  const items = (chosen?.messages || []).map(itemOf);
  stale = false;
  const there = new Set(chosen?.messages);
  for (const m of painted.keys()) if (!there.has(m)) painted.delete(m);
  if (chosen?.draft) items.push(messageItem({ role: "assistant", content: chosen.draft.content, metadata: chosen.draft.metadata }));
  if (chosen?.remark) items.push(element("li", "failure", chosen.remark));
  if (items.length === 0) items.push(element("li", "hint", chosen ? "Nothing has been said yet." : "Write a message to begin a session, or choose one."));
  arrange(list, items);
  list.setAttribute("aria-busy", String(Boolean(chosen?.active)));
  if (atEnd) list.scrollTop = list.scrollHeight;
  page.title.textContent = chosen ? chosen.title : "No session chosen";
  page.stop.hidden = !chosen?.active;
  paintSession();
}

// arrange moves only items that are out of place, so that the focus stays where it is.
function arrange(list, items) {
  items.forEach((item, i) => {
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
  });
  while (list.children.length > items.length) list.lastElementChild.remove();
}

// paintSession shows the elements that belong to the session and not to a message.
function paintSession() {
  page.status.textContent = texts(ui.elements, "status_bar", context(chosen?.reply)).join(" · ");
  page.settings.hidden = !chosen || settable(ui, context()).length === 0;
  rebuildIfChanged("actions", chosen ? shown(ui.elements, "session_action", context()) : [],
    () => page.actions.replaceChildren(...actions(ui.elements, "session_action", context, outcome)));
  rebuildIfChanged("attachments", chosen ? shown(ui.elements, "composer_attachment", context()) : [], (elements) => attachments.offer(elements));
}

// rebuildIfChanged replaces buttons only when their elements changed, so that the focus
// stays where it is.
const kept = {};
function rebuildIfChanged(name, elements, make) {
  const now = JSON.stringify(elements);
  if (kept[name] === now) return;
  kept[name] = now;
  make(elements);
}

// outcome shows the result or the error of an action.
const outcome = {
  async done(e, result) {
    const text = typeof result === "string" ? result : result?.message;
    notify(typeof text === "string" ? text : `${e.label || e.action_id}: done.`, "quiet");
    await refresh();
  },
  failed(err) { notify(err.message, "fault"); },
};

function messageItem(m) {
  const meta = m.metadata || {};
  const item = element("li", m.role, undefined, element("div", "role", meta.tool_name ? `${m.role}: ${meta.tool_name}` : m.role));
  const reasoning = reasoningOf(meta);
  if (reasoning) item.append(folded("Reasoning", reasoning));
  const text = meta.display?.type === "text" ? meta.display.content : m.content;
  if (m.role === "tool") item.append(folded(meta.is_error ? "Failed" : "Result", text));
  else if (text || !m.id) item.append(element("div", "text", text));
  item.append(element("div", "images", undefined, ...images(chosen.id, m)));
  for (const c of listOf(meta.tool_calls)) item.append(folded(`Calls ${c.function?.name}`, c.function?.arguments || ""));
  for (const remark of remarksOf(m)) item.append(element("div", "remark", remark));
  return item;
}

function itemOf(m) {
  let known = painted.get(m);
  if (!known) {
    known = { item: messageItem(m), footer: element("div", "footer quiet"), made: "" };
    known.item.append(known.footer);
    painted.set(m, known);
  }
  if (stale || !known.made) paintFooter(known, m);
  return known.item;
}

// paintFooter shows the elements that belong to a message.
function paintFooter(known, m) {
  const said = texts(ui.elements, "message_footer", context(m));
  const made = JSON.stringify([said, shown(ui.elements, "message_action", context(m))]);
  if (made === known.made) return;
  known.made = made;
  const withIndex = () => context({ ...m, index: chosen.messages.findIndex((other) => other.id === m.id) });
  known.footer.replaceChildren(...said.map((text) => element("span", "", text)), ...actions(ui.elements, "message_action", withIndex, outcome));
}

// The user.

const settings = new Settings(byId("settings"), () => ({ ui, context: context() }), write);
const models = new ModelPicker(byId("model"), () => (chosen ? { id: chosen.id, ui, context: context() } : null), 
  guarded((key, value) => write(key, value).finally(() => models.show())));
const attachments = new Attachments(byId("attach"), byId("attachments"), () => chosen?.id, guarded);

page.settings.onclick = () => settings.open();

byId("new").onclick = guarded(async () => {
  const session = await call("POST", "/sessions", {});
  location.hash = session.session_id;
  page.content.focus();
});

page.more.onclick = guarded(async () => {
  pages++;
  await showSessions();
});

// Loading the page again removes everything that it shows, and asks for a token.
page.signOut.onclick = guarded(async () => {
  await signOut();
  location.replace(location.pathname);
});

page.composer.onsubmit = (e) => {
  e.preventDefault();
  send();
};

const send = guarded(async () => {
  const content = page.content.value;
  const attached = attachments.chosen();
  if (!content.trim() && attached.length === 0) return;
  const id = chosen?.id || (await call("POST", "/sessions", {})).session_id;
  await call("POST", `${pathOf(id)}/send`, { content, on_busy: "queue", ...(attached.length > 0 && { attachments: attached }) });
  page.content.value = "";
  attachments.clear();
  location.hash = id;
});

page.content.onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    page.composer.requestSubmit();
  }
};

page.content.onpaste = (e) => {
  const files = [...e.clipboardData.files];
  if (files.length === 0 || !attachments.offered) return;
  e.preventDefault();
  attachments.take(files);
};

page.stop.onclick = guarded(async () => {
  page.content.focus(); // the button is about to disappear
  if (chosen?.active) await call("POST", `/requests/${chosen.active}/cancel`);
});

addEventListener("hashchange", guarded(async () => {
  await choose(location.hash.slice(1));
  await showSessions();
}));

guarded(() => pairBy(location.hash))().finally(connect);
