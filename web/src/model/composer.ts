// What the user is writing: one draft for each session, which survives a reload.
import { newId } from "@loquat/client";
import { computed, signal, type Signal } from "@preact/signals";
import { imageName, maxPieces, readImage, type Chosen, type Piece, type Refusal } from "./attachments.ts";
import { memoryFiles, type Files } from "./files.ts";
import type { Storage } from "./storage.ts";
import type { Attachment, Metadata } from "./types.ts";

/** NewSession is what a session is created with. */
export interface NewSession {
  readonly agent_id?: string;
  readonly metadata?: { [key: string]: unknown };
}

/** Taken is what is sent. */
export interface Taken {
  readonly text: string;
  readonly pieces: readonly Piece[];
}

/** Refused is a file that is not attached. */
export interface Refused {
  readonly name: string;
  readonly why: Refusal;
}

interface Stored {
  readonly text?: string;
  /** Without their images, which are in the files. */
  readonly pieces?: readonly Piece[];
  readonly agent?: string;
  readonly metadata?: Metadata;
}

/** inTime fails if the browser does not store or load an image soon, so that a draft never waits for it. */
async function inTime<T>(work: Promise<T>, ms = 5000): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(new Error("too late")), ms)));
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Composer is the draft of one session, or of a session that does not exist yet. */
export class Composer {
  readonly text = signal("");
  readonly pieces: Signal<readonly Piece[]> = signal([]);
  /** The names of attachments that did not survive a reload. */
  readonly lost: Signal<readonly string[]> = signal([]);
  /** The images that are being read; until then the draft cannot be sent. */
  readonly reading = signal(0);
  /** The agent and metadata of a session that does not exist yet. */
  readonly agent = signal("");
  readonly metadata: Signal<Metadata> = signal({});
  readonly ready = computed(() => this.reading.value === 0 && (this.text.value.trim() !== "" || this.pieces.value.length > 0));
  /** Resolves when the images of a stored draft are there. */
  readonly restored: Promise<void>;
  /** The stored attachments that are not shown yet. */
  private restoring: readonly Piece[] = [];

  constructor(
    readonly id: string,
    private readonly storage: Storage,
    private readonly files: Files = memoryFiles(),
  ) {
    const stored = (storage.get(this.key) ?? {}) as Stored;
    this.text.value = typeof stored.text === "string" ? stored.text : "";
    this.agent.value = stored.agent ?? "";
    this.metadata.value = stored.metadata ?? {};
    this.restored = Array.isArray(stored.pieces) ? this.restore(stored.pieces) : Promise.resolve();
  }

  private get key(): string {
    return `draft.${this.id}`;
  }

  /** restore shows the attachments of the stored draft again. */
  private async restore(stored: readonly Piece[]): Promise<void> {
    this.reading.value++;
    this.restoring = stored;
    const found = await Promise.all(stored.map(async (piece): Promise<Piece | undefined> => {
      if (piece.attachment) return piece;
      const image = await inTime(this.files.get(piece.key)).catch(() => undefined);
      return image && { ...piece, image };
    }));
    this.restoring = [];
    this.pieces.value = [...found.filter((piece) => piece !== undefined), ...this.pieces.peek()];
    this.lost.value = stored.filter((_, i) => !found[i]).map((piece) => piece.name);
    this.reading.value--;
    this.save();
  }

  write(text: string): void {
    this.text.value = text;
    this.save();
  }

  /** attach adds the files that are images. It returns the others, and those that a reload would lose. */
  async attach(files: readonly Chosen[]): Promise<{ refused: readonly Refused[]; unkept: readonly string[] }> {
    const refused: Refused[] = [];
    const unkept: string[] = [];
    this.reading.value++;
    try {
      for (const file of files) {
        const name = imageName(file);
        const image = this.pieces.peek().length >= maxPieces ? "count" : await readImage(file);
        if (typeof image === "string") refused.push({ name, why: image });
        else if (!(await this.keep({ key: newId(), name, image }))) unkept.push(name);
      }
    } finally {
      this.reading.value--;
    }
    return { refused, unkept };
  }

  /** keep adds an attachment. It reports whether a reload keeps it. */
  private async keep(piece: Piece): Promise<boolean> {
    const kept = piece.image ? await inTime(this.files.set(piece.key, piece.image)).then(() => true, () => false) : true;
    this.pieces.value = [...this.pieces.peek(), piece];
    this.save();
    return kept;
  }

  /** refer adds an image that the server has, or the address of one. It reports whether there is room. */
  refer(name: string, attachment: Attachment): boolean {
    if (this.pieces.peek().length >= maxPieces) return false;
    this.pieces.value = [...this.pieces.peek(), { key: newId(), name, attachment }];
    this.save();
    return true;
  }

  detach(key: string): void {
    this.pieces.value = this.pieces.peek().filter((piece) => piece.key !== key);
    this.save();
    this.forget([key]);
  }

  /** forget deletes images that the draft does not need any more. */
  forget(keys: readonly string[]): void {
    if (keys.length) void this.files.delete(keys).catch(() => {}); // it is only kept in vain
  }

  choose(settings: { agent?: string; metadata?: Metadata }): void {
    if (settings.agent !== undefined) this.agent.value = settings.agent;
    if (settings.metadata) this.metadata.value = settings.metadata;
    this.save();
  }

  /** newSession returns what the session is created with. */
  newSession(): NewSession {
    return { ...(this.agent.peek() && { agent_id: this.agent.peek() }), ...(Object.keys(this.metadata.peek()).length > 0 && { metadata: { ...this.metadata.peek() } }) };
  }

  /** take returns the draft and empties the box. The stored draft stays until sent: until then, a reload brings it back. */
  take(): Taken {
    const taken = { text: this.text.peek(), pieces: this.pieces.peek() };
    this.text.value = "";
    this.pieces.value = [];
    return taken;
  }

  /** sent forgets what was taken, and keeps what the user wrote meanwhile. */
  sent({ pieces }: Taken): void {
    this.save();
    this.forget(pieces.filter((piece) => piece.image).map((piece) => piece.key));
  }

  /** The composer that gets what comes too late, because the session of this one was deleted. */
  heir: Composer | undefined;

  /** putBack puts what was taken in front of what the user wrote meanwhile. */
  putBack({ text, pieces }: Taken): void {
    if (this.heir) return this.heir.putBack({ text, pieces });
    this.text.value = [text, this.text.peek()].filter(Boolean).join("\n\n");
    this.pieces.value = [...pieces, ...this.pieces.peek()];
    this.save();
    for (const { key, image } of pieces) if (image) void this.files.set(key, image).catch(() => {}); // then a reload loses it
  }

  save(): void {
    const pieces = [...this.restoring, ...this.pieces.peek()].map(({ key, name, attachment }) => ({ key, name, ...(attachment && { attachment }) }));
    const stored: Stored = {
      ...(this.text.peek() && { text: this.text.peek() }),
      ...(pieces.length && { pieces }),
      ...(this.agent.peek() && { agent: this.agent.peek() }),
      ...(Object.keys(this.metadata.peek()).length && { metadata: this.metadata.peek() }),
    };
    this.storage.set(this.key, Object.keys(stored).length ? stored : undefined);
  }
}
