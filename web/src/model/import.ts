// The import of chats from files of Loquat and other applications.
import type { ImportedSession, ImportReport } from "@loquat/client";
import { signal, type Signal } from "@preact/signals";
import { asProblem, type Problem, type Wire } from "./wire.ts";

/** Source is a file of the user; a File is one. */
export type Source = Blob & { readonly name?: string };

/** Progress is what an import does at the moment. */
export interface Progress {
  readonly name: string;
  /** The number of the file, from 1. */
  readonly file: number;
  readonly files: number;
  /** The part of the file that was sent, from 0 to 1. At 1, the server reads the rest. */
  readonly sent: number;
}

/** Result says what became of one file. */
export interface Result {
  readonly name: string;
  readonly report?: ImportReport;
  readonly error?: Problem;
}

/** Import sends files one after the other. */
export class Import {
  readonly progress: Signal<Progress | null> = signal(null);
  readonly results: Signal<readonly Result[]> = signal([]);
  private call: AbortController | null = null;

  constructor(private readonly wire: Wire) {}

  /** run imports files. copies gives sessions new ids, so that those come, too, that were changed or deleted on the server. */
  async run(files: readonly Source[], copies: boolean): Promise<void> {
    if (this.call || !files.length) return;
    const call = (this.call = new AbortController());
    this.results.value = [];
    for (const [i, file] of files.entries()) {
      const name = file.name ?? "";
      const show = (sent: number): void => void (this.progress.value = { name, file: i + 1, files: files.length, sent });
      show(0);
      const result = await this.send(file, copies, call.signal, show);
      if (call.signal.aborted) break;
      this.results.value = [...this.results.peek(), { name, ...result }];
    }
    this.progress.value = null;
    this.call = null;
  }

  private async send(file: Source, copies: boolean, signal: AbortSignal, show: (sent: number) => void): Promise<Omit<Result, "name">> {
    try {
      const onProgress = (sent: number, total: number): void => show(total ? sent / total : 0);
      return { report: await this.wire.sdk.sessions.import(file, copies ? { new_ids: true } : {}, { signal, onProgress }) };
    } catch (thrown) {
      return { error: asProblem(thrown) };
    }
  }

  /** stop ends the import. The sessions before stay. */
  stop(): void {
    this.call?.abort();
  }
}

/** notable returns the sessions of a report that failed or lost something. */
export const notable = (report: ImportReport): readonly ImportedSession[] => report.sessions.filter(({ error, notes }) => error || notes?.length);
