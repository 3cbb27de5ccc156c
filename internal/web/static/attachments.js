// Images that go out with the next message.

import { call, upload } from "./api.js";
import { button, element } from "./dom.js";
import { acceptOf } from "./elements.js";
import { ask } from "./forms.js";
import { pathOf } from "./session.js";

// Attachments fills two places: the buttons, and what is attached so far. session
// returns the id of the session to upload to; guarded wraps what may fail.
export class Attachments {
  constructor(buttons, list, session, guarded) {
    Object.assign(this, { buttons, list, session, guarded, attached: [] });
  }

  // offer shows the buttons that the elements of the session ask for.
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

  // take uploads files, one after the other.
  take = (files) => this.guarded(async () => {
    const id = this.session();
    for (const file of files) {
      const { asset_id, name } = await upload(id, file);
      const drop = this.guarded(() => call("DELETE", `${pathOf(id)}/assets/${encodeURIComponent(asset_id)}`));
      if (this.session() !== id) return drop(); // the user went elsewhere
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
