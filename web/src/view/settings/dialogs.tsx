// The dialogs of actions: the form that asks for values, and the result.
import "../parts/common.ts";
import { useRef, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { actionLabel, inputsOf, labelOf } from "../../model/elements.ts";
import { enteredIn, readInputs, type Entered } from "../../model/inputs.ts";
import type { Asked } from "../../model/settings.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Spinner } from "../parts/Spinner.tsx";
import { Control } from "./Control.tsx";

export default function Dialogs() {
  const { settings } = useApp();
  const asked = settings.asked.value;
  if (asked) return <ActionForm key={`${asked.element.plugin} ${asked.element.id}`} asked={asked} />;
  return settings.result.value && <Result />;
}

type Texts = { readonly [name: string]: string };

function ActionForm({ asked }: { readonly asked: Asked }) {
  const { settings } = useApp();
  const { element } = asked;
  const { dialog } = element;
  const specs = inputsOf(element);
  const form = useRef<HTMLFormElement>(null);
  const [entered, setEntered] = useState<Entered>(new Map());
  const [faults, setFaults] = useState<Texts>({});
  const running = settings.isRunning(element);
  const label = actionLabel(element);
  const close = (): void => void (settings.asked.value = null);
  const fail = (found: Texts): void => {
    setFaults(found);
    requestAnimationFrame(() => form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus());
  };
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    if (running) return;
    const { values, faults: found } = readInputs(specs, entered);
    const names = Object.keys(found);
    if (names.length) return fail(Object.fromEntries(names.map((name) => [name, t(`setting.fault_${found[name]!}`)])));
    setFaults({});
    const problem = await settings.run(asked, values);
    if (problem) fail(settings.faults(element, problem));
    else if (settings.asked.peek() === asked) close();
  };
  const message = labelOf(dialog?.message);
  return (
    <Dialog title={labelOf(dialog?.title) || label} class="small" test="action-dialog" onClose={close}>
      <form ref={form} noValidate onSubmit={(e) => void submit(e)}>
        {message && <p class="action-message" dir="auto">{message}</p>}
        {specs.map((spec) => {
          const { text, value } = enteredIn(entered, spec);
          const enter = (now: { readonly text?: string; readonly value?: unknown }): void => setEntered((before) => new Map(before).set(spec.key, now));
          return (
            <Control
              key={spec.key}
              spec={spec}
              value={value}
              draft={text}
              disabled={running}
              error={faults[spec.key]}
              write={(written) => enter({ text: written })}
              done={() => {}}
              choose={(chosen) => enter({ value: chosen })}
            />
          );
        })}
        {faults[""] && <p class="field-error" role="alert" dir="auto" data-test="action-error">{faults[""]}</p>}
        <footer class="dialog-foot">
          {running && <Spinner label={t("plugins.progress", { label })} />}
          <Button onClick={close}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" disabled={running} data-test="action-run">{label || t("plugins.run")}</Button>
        </footer>
      </form>
    </Dialog>
  );
}

function Result() {
  const { settings } = useApp();
  const result = settings.result.value;
  if (!result) return null;
  const text = typeof result.value === "string" ? result.value : JSON.stringify(result.value, null, 2);
  return (
    <Dialog title={result.label} test="action-result" onClose={() => (settings.result.value = null)}>
      <pre class="action-result" dir="auto" tabIndex={0}>{text}</pre>
    </Dialog>
  );
}
