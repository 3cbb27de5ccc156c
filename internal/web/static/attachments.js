// Images that will be sent with the next message.

import { call, upload } from "./api.js";
import { button, element } from "./dom.js";
import { acceptOf } from "./elements.js";
import { ask } from "./forms.js";
import { pathOf } from "./session.js";

// Attachments fills two elements: the buttons, and the list of attached images. session
// returns the id of the session to upload to. guarded wraps functions that may fail.
export class Attachments {
  constructor(buttons, list, session, guarded) {
    Object.assign(this, { buttons, list, session, guarded, attached: [] });
  }

  // offer shows a button for each element that accepts images.
  offer(elements) {
    const images = elements.filter((e) => (e.attachment_type || "image") === "image");
    this.offered = images.length > 0;
    this.buttons.replaceChildren(...images.flatMap((e) => {
      const label = e.label || "Attach an image";
      const file = element("input");
      Object.assign(file, { type: "file", multiple: true, hidden: true, accept: acceptOf(e) });
      file.onchange = () => {
        this.take([...file.files]);
        file.value = "";
      };
      const byFile = [button(label, () => file.click()), file];
      return e.supports_url ? [...byFile, button("Image by URL", () => this.askURL())] : byFile;
    }));
  }

  // take uploads files one after the other and attaches them.
  take = (files) => this.guarded(async () => {
    const id = this.session();
    for (const file of files) {
      const { asset_id, name } = await upload(id, file);
      const drop = this.guarded(() => call("DELETE", `${pathOf(id)}/assets/${encodeURIComponent(asset_id)}`));
      if (this.session() !== id) return drop(); // the user chose another session
      this.add({ type: "image", asset_id }, name || file.name, drop);
    }
  })();

  askURL() {
    const inputs = [{ name: "url", type: "text", label: "Address of the image", required: true, placeholder: "https://…" }];
    return ask({ title: "Image by URL", inputs, confirm: "Attach" }, ({ url }) => this.add({ type: "image", url }, url));
  }

  add(attachment, name, drop) {
    const entry = { attachment, drop };
    const remove = button("Remove", () => {
      this.attached = this.attached.filter((other) => other !== entry);
      entry.item.remove();
      drop?.();
    }, "link");
    remove.setAttribute("aria-label", `Remove ${name}`);
    entry.item = element("li", "", `${name} `, remove);
    this.attached.push(entry);
    this.list.append(entry.item);
  }

  chosen() { return this.attached.map((a) => a.attachment); }

  clear() {
    this.attached = [];
    this.list.replaceChildren();
  }
}
