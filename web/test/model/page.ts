// The model of a page on a wire in memory.
import { fromSnapshot, type Snapshot } from "@loquat/client";
import { App } from "../../src/model/app.ts";
import { memory } from "../../src/model/storage.ts";
import { FakeWire } from "./fake.ts";

// A browser drops the timers of a page that is closed. Here, long ones would keep the process of the tests alive.
const setTimer = globalThis.setTimeout;
globalThis.setTimeout = Object.assign((fn: () => void, ms?: number) => {
  const timer = setTimer(fn, ms);
  return ms! >= 1_000 ? timer.unref() : timer;
}, setTimer);

export const tick = (ms = 0): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export async function page(me: object = { requires_token: false, scope: "full", browser: false }, stored = new Map<string, unknown>()) {
  const wire = new FakeWire();
  wire.answers = { "GET /auth/me": me, "GET /agents": { agents: [{ agent_id: "default", provider: "scripted" }] } };
  const app = new App(wire.wire, memory(stored));
  app.start();
  await tick();
  return { wire, app, stored };
}

export const state = (id: string, more: object = {}) => fromSnapshot({ session_id: id, agent_id: "a", created_at: "", updated_at: "", metadata: { title: "T" }, messages: [], cursor_event_id: "0000000000000001", ...more } as unknown as Snapshot);
