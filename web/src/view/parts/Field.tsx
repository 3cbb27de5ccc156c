import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldIds {
  readonly id: string;
  readonly "aria-describedby"?: string;
  readonly "aria-invalid"?: boolean;
}

interface FieldProps {
  readonly label: string;
  readonly help?: ComponentChildren;
  readonly error?: string | undefined;
  readonly children: (ids: FieldIds) => ComponentChildren;
}

/** Field joins a control with its label, its help and its error. */
export function Field({ label, help, error, children }: FieldProps) {
  const id = useId();
  const described = [help ? `${id}-help` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ");
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, ...(described && { "aria-describedby": described }), ...(error && { "aria-invalid": true }) })}
      {help && <p id={`${id}-help`} class="field-help">{help}</p>}
      {error && <p id={`${id}-error`} class="field-error" role="alert">{error}</p>}
    </div>
  );
}
