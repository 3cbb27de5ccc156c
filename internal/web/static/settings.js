// The dialog of a session's settings. Each change is written at once, as an override.

import { rootOf, visible } from "./conditions.js";
import { button, element } from "./dom.js";
import { control } from "./forms.js";

const origins = { override: "set for this session", config: "from the configuration", ui_default: "default", schema_default: "default", none: "not set" };

// settable returns the config elements whose condition holds.
export const settable = (ui, context) => ui.elements.filter((e) => e.ui_type === "config" && e.key && visible(e.condition, rootOf("config"), context));

// Settings is the dialog. source returns the current {ui, context}. write stores one
// setting and resolves when source returns the new value.
export class Settings {
  constructor(dialog, source, write) {
    Object.assign(this, { dialog, source, write });
    this.rows = new Map(); // rows by key, each with the JSON of its element and value
    this.fields = element("div");
    dialog.append(this.fields, element("div", "buttons", undefined, button("Close", () => dialog.close(), "primary")));
  }

  open() {
    this.rows.clear(); // drops values that the server refused and the user did not fix
    this.draw();
    this.dialog.showModal();
  }

  // draw rebuilds only the rows that changed. Text that the user is typing in other rows
  // stays, and so does the focus.
  draw() {
    const { ui, context } = this.source();
    const focused = document.activeElement?.closest("[data-key]")?.dataset.key;
    const before = this.rows;
    this.rows = new Map(settable(ui, context).map((e) => {
      const value = ui.values[e.key] || { value: null, source: "none" };
      const made = JSON.stringify([e, value]);
      const old = before.get(e.key);
      return [e.key, old?.made === made ? old : { made, row: this.field(e, value) }];
    }));
    this.fields.replaceChildren(...Array.from(this.rows.values(), (r) => r.row));
    if (focused) this.fields.querySelector(`[data-key="${CSS.escape(focused)}"] :is(input:checked, input:not([type=radio]), select, textarea)`)?.focus();
  }

  field(e, { value, source }) {
    const secret = value && typeof value === "object" && typeof value.set === "boolean" && Object.keys(value).length === 1;
    const c = control(e, secret ? "" : value);
    const about = element("p", "quiet origin", secret ? (value.set ? "a secret, set" : "a secret, not set") : origins[source] || source);
    const row = element("div", "setting", undefined, c.node, about);
    row.dataset.key = e.key;
    if (secret) c.input.disabled = true;
    const change = async (read) => {
      c.showError("");
      try {
        await this.write(e.key, read());
        this.draw();
      } catch (err) { // the refused value stays in the input for the user to fix
        c.showError(err.errors?.map((each) => each.message).join("; ") || err.message);
      }
    };
    c.node.onchange = () => change(c.read);
    if (source === "override") about.append(" ", button("Reset", () => change(() => null), "link"));
    return row;
  }
}
