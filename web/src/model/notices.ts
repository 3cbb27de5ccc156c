// Short notices at the edge of the page, some with an action such as Undo.
import { signal, type Signal } from "@preact/signals";
import { newId } from "@loquat/client";

interface Notice {
  readonly id: string;
  readonly kind: "info" | "error";
  readonly text: string;
  readonly action?: { readonly label: string; readonly run: () => void };
}

export class Notices {
  readonly shown: Signal<readonly Notice[]> = signal([]);

  add(notice: Omit<Notice, "id">, ms = notice.kind === "error" ? 10_000 : 5000): string {
    const id = newId();
    this.shown.value = [...this.shown.peek().slice(-3), { id, ...notice }];
    setTimeout(() => this.remove(id), ms);
    return id;
  }

  remove(id: string): void {
    this.shown.value = this.shown.peek().filter((notice) => notice.id !== id);
  }
}
