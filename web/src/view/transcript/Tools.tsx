import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { gist, pretty } from "../../model/pretty.ts";
import type { ToolCall, ToolsPart } from "../../model/transcript.ts";
import { Icon } from "../parts/Icon.tsx";
import { Images } from "./Images.tsx";

/** More calls in a row than this are one line, until the user opens it. */
const few = 3;

const failed = (call: ToolCall): boolean => call.result?.metadata?.is_error === true;

/** Tools shows the calls of one or more phases in a row, each with its arguments, its output and its result. */
export function Tools({ parts }: { readonly parts: readonly ToolsPart[] }) {
  const [open, setOpen] = useState(false);
  const calls = parts.flatMap((part) => part.calls);
  const many = calls.length > few;
  const done = calls.filter((call) => call.result).length;
  const running = calls.some((call) => !call.result && call.live);
  const failures = calls.filter(failed).length;
  return (
    <div class={`tools ${many ? "many" : ""}`} data-test="tools">
      {many && (
        <button type="button" class="tools-all" aria-expanded={open} data-test="tools-all" onClick={() => setOpen(!open)}>
          <Icon name="tool" size={17} />
          <span>{running ? t("transcript.tools_of", { done, n: calls.length }) : t("transcript.tools_used", { n: calls.length })}</span>
          {failures > 0 && <span class="tool-state bad">{t("transcript.tools_failed", { n: failures })}</span>}
          <Icon name="chevron-down" size={16} />
        </button>
      )}
      <ul class="plain" hidden={many && !open}>
        {calls.map((call, i) => <li key={i}><Tool call={call} opened={() => setOpen(true)} /></li>)}
      </ul>
    </div>
  );
}

function Tool({ call, opened }: { readonly call: ToolCall; readonly opened: () => void }) {
  const [open, setOpen] = useState(false);
  const toggle = (now: boolean): void => {
    setOpen(now);
    if (now) opened(); // so that it stays in sight when further calls make a group of these
  };
  return (
    <details class={`tool ${failed(call) ? "failed" : ""}`} data-test="tool" data-state={stateOf(call)} onToggle={(e) => toggle(e.currentTarget.open)}>
      <summary>
        <Icon name="tool" size={17} />
        <span class="tool-name" dir="auto">{call.name}</span>
        <span class="tool-gist" dir="auto">{gist(call.arguments)}</span>
        <State call={call} />
        <Icon name="chevron-down" size={16} />
      </summary>
      {open && <Body call={call} />}
    </details>
  );
}

function stateOf(call: ToolCall): "failed" | "done" | "running" | "not_run" {
  if (call.result) return failed(call) ? "failed" : "done";
  return call.live ? "running" : "not_run";
}

function State({ call }: { readonly call: ToolCall }) {
  const state = stateOf(call);
  const live = call.live?.value;
  if (state === "running" && live?.progress !== undefined && live.total) {
    return <progress class="tool-progress" value={live.progress} max={live.total} aria-label={t("transcript.progress")} />;
  }
  if (state === "done") return <span class="tool-state good"><Icon name="check" size={16} /><span class="sr-only">{t("transcript.tool_done")}</span></span>;
  return <span class={`tool-state ${state === "failed" ? "bad" : state === "running" ? "busy" : ""}`}>{t(`transcript.tool_${state}`)}</span>;
}

function Body({ call }: { readonly call: ToolCall }) {
  const live = call.live?.value;
  const result = call.result ?? live?.result;
  const display = result?.metadata?.display as { type?: unknown; content?: unknown } | undefined;
  const text = display?.type === "text" && typeof display.content === "string" ? display.content : pretty(result?.content ?? "");
  return (
    <div class="tool-body">
      {call.arguments && call.arguments !== "{}" && <Block name={t("transcript.arguments")} text={pretty(call.arguments)} />}
      {result ? text && <Block name={t("transcript.result")} text={text} /> : live?.output && <Block name={t("transcript.output")} text={live.output} growing />}
      {result && <Images message={result} />}
    </div>
  );
}

/** A text longer than this is shown in part first. */
const long = 20_000;

function Block({ name, text, growing = false }: { readonly name: string; readonly text: string; readonly growing?: boolean }) {
  const [all, setAll] = useState(false);
  const cut = text.length > long && !all;
  const shown = !cut ? text : growing ? text.slice(-long) : text.slice(0, long);
  return (
    <>
      <h3>{name}</h3>
      <div class={`tool-text ${growing ? "growing" : ""}`} tabIndex={0} role="group" aria-label={name}><pre dir="auto">{shown}</pre></div>
      {cut && <button type="button" class="chip" onClick={() => setAll(true)}>{t("transcript.show_all", { n: text.length })}</button>}
    </>
  );
}
