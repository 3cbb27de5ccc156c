// The input of a setting or of a dialog. Its text is kept by who shows it.
import { useId } from "preact/hooks";
import type { ComponentChildren, VNode } from "preact";
import { t } from "../../i18n/index.ts";
import { shownValue, withValue, type Spec } from "../../model/elements.ts";
import { textOfValue } from "../../model/inputs.ts";

interface ControlProps {
  readonly spec: Spec;
  readonly value: unknown;
  /** The text that the user is writing; undefined shows the value. */
  readonly draft: string | undefined;
  readonly disabled?: boolean;
  readonly error?: string | undefined;
  /** What stands below the input. */
  readonly children?: ComponentChildren;
  readonly write: (text: string) => void;
  /** The user is done with the text. */
  readonly done: (text: string) => void;
  /** The user chose a value. */
  readonly choose: (value: unknown) => void;
}

export function Control(props: ControlProps): VNode {
  const { spec, error, children } = props;
  const id = useId();
  const described = [spec.description ? `${id}-help` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ");
  const ids = { id, "aria-describedby": described || undefined, "aria-invalid": error ? true : undefined, disabled: props.disabled ?? false } as const;
  const below = (
    <>
      {spec.description && <p id={`${id}-help`} class="field-help" dir="auto">{spec.description}</p>}
      {error && <p id={`${id}-error`} class="field-error" role="alert" dir="auto" data-test="field-error">{error}</p>}
      {children}
    </>
  );
  const name = <span dir="auto">{spec.label}{spec.required && spec.kind !== "checkbox" && <span class="required" aria-hidden="true"> *</span>}</span>;
  const named = (input: VNode): VNode => (
    <div class="field" data-key={spec.key}>
      <label for={id}>{name}</label>
      {input}
      {below}
    </div>
  );
  switch (spec.kind) {
    case "checkbox":
      return (
        <div class="field" data-key={spec.key}>
          <label class="check" for={id}>
            <input {...ids} type="checkbox" checked={props.value === true} onChange={(e) => props.choose(e.currentTarget.checked)} />
            {name}
          </label>
          {below}
        </div>
      );
    case "chips":
      return <Chips {...props} ids={ids} name={name} below={below} />;
    case "dropdown":
      return named(<Dropdown {...props} ids={ids} />);
    case "text":
    case "multiline":
    case "number":
      return named(<Text {...props} ids={ids} />);
  }
}

interface Ids {
  readonly id: string;
  readonly "aria-describedby": string | undefined;
  readonly "aria-invalid": true | undefined;
  readonly disabled: boolean;
}

function Text({ spec, value, draft, ids, write, done }: ControlProps & { readonly ids: Ids }) {
  const shared = {
    ...ids,
    class: `input ${spec.json ? "json" : ""}`,
    dir: spec.json ? "ltr" : "auto",
    required: spec.required,
    placeholder: spec.placeholder || undefined,
    spellcheck: !spec.json,
    value: draft ?? textOfValue(spec, value),
    onInput: (e: { readonly currentTarget: { readonly value: string } }) => write(e.currentTarget.value),
    onChange: (e: { readonly currentTarget: { readonly value: string } }) => done(e.currentTarget.value),
  } as const;
  if (spec.kind === "multiline" || spec.json) return <textarea {...shared} rows={4} />;
  return <input {...shared} type="text" inputMode={spec.kind === "number" ? "decimal" : undefined} autocomplete="off" />;
}

function Dropdown({ spec, value, ids, choose }: ControlProps & { readonly ids: Ids }) {
  const options = withValue(spec.options, value);
  const at = options.findIndex((option) => shownValue(option.value) === shownValue(value));
  return (
    <select
      {...ids}
      class="input"
      required={spec.required}
      value={at < 0 ? "" : String(at)}
      onChange={(e) => {
        const option = options[Number(e.currentTarget.value)];
        if (e.currentTarget.value !== "" && option) choose(option.value);
      }}
    >
      {at < 0 && <option value="">{spec.placeholder || t("setting.choose")}</option>}
      {options.map((option, i) => <option key={i} value={String(i)}>{option.label}</option>)}
    </select>
  );
}

/** Chips shows all options at once. */
function Chips({ spec, value, ids, name, below, choose }: ControlProps & { readonly ids: Ids; readonly name: ComponentChildren; readonly below: ComponentChildren }) {
  const options = withValue(spec.options, value);
  return (
    <fieldset class="field chips" data-key={spec.key} disabled={ids.disabled} aria-describedby={ids["aria-describedby"]}>
      <legend>{name}</legend>
      <div class="chips-row">
        {options.map((option, i) => (
          <label key={i} class="chip">
            <input type="radio" class="sr-only" name={ids.id} checked={shownValue(option.value) === shownValue(value)} onChange={() => choose(option.value)} />
            <span dir="auto">{option.label}</span>
          </label>
        ))}
      </div>
      {below}
    </fieldset>
  );
}
