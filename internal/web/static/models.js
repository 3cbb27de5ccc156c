// The choice of a model next to the message box.

import { call } from "./api.js";
import { element } from "./dom.js";
import { optionsOf, shown } from "./elements.js";

// ModelPicker fills the element place. source returns {id, ui, context} of the session, or
// null. choose writes a setting.
export class ModelPicker {
  constructor(place, source, choose) {
    Object.assign(this, { place, source, choose });
  }

  // show offers the models that the picker's setting allows, or else those that the
  // backend lists. If there are none, it shows no picker.
  async show() {
    const now = this.source();
    const pickers = now ? shown(now.ui.elements, "model_picker", now.context) : [];
    const rows = await Promise.all(pickers.map((e) => this.row(e, now)));
    if (this.source()?.id !== now?.id) return;
    const focused = this.place.contains(document.activeElement);
    this.place.replaceChildren(...rows.filter(Boolean));
    if (focused) this.place.querySelector("select")?.focus();
  }

  async row(picker, { id, ui }) {
    const key = picker.key || "model";
    const setting = ui.elements.find((e) => e.ui_type === "config" && e.key === key);
    if (!setting) return null; // without the setting a choice could not be stored
    let options = optionsOf(setting);
    if (options.length === 0) {
      const { models } = await call("GET", `/models?session_id=${encodeURIComponent(id)}`);
      options = models.map((m) => ({ value: m.id, label: m.name || m.id }));
    }
    if (options.length === 0) return null;
    const value = ui.values[key]?.value;
    if (!options.some((o) => o.value === value)) options.unshift({ value, label: value ? String(value) : "" });
    const select = element("select", "", undefined, ...options.map((o) => element("option", "", o.label)));
    select.selectedIndex = options.findIndex((o) => o.value === value);
    select.onchange = () => this.choose(key, options[select.selectedIndex].value);
    return element("label", "quiet", `${picker.label || "Model"} `, select);
  }
}
