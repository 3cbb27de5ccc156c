// The real program for tests: a server with the scripted backend, and a network between it and the browser.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createConnection, createServer, type AddressInfo, type Server as NetServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");
const program = process.env["LOQUAT_PROGRAM"] ?? join(root, "bin", "loquat");

/** Script is what the scripted backend does with a request; docs/backend.md lists the directives. */
export type Script = Record<string, unknown>;

/** NewSession describes a session to create. */
export interface NewSession {
  id?: string;
  title?: string;
  model?: string;
  script?: Script;
  metadata?: Record<string, unknown>;
  messages?: { role: string; content: string; metadata?: Record<string, unknown> }[];
}

/** Options of a Server. */
export interface Options {
  /** Further parts of the configuration. */
  config?: Record<string, unknown>;
  /** Fields of the provider's configuration. */
  provider?: Record<string, unknown>;
  /** Environment variables for the server. It also gets those of the test. */
  env?: Record<string, string>;
}

/** start runs a command of the program until it listens, and returns its address. */
async function start(args: string[], log: (line: string) => void, env: Record<string, string> = {}): Promise<{ process: ChildProcess; url: string }> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  createInterface({ input: child.stderr! }).on("line", log);
  const lines = createInterface({ input: child.stdout! });
  const failed = once(child, "exit").then(([code]) => {
    throw new Error(`loquat ${args[0]} ended with code ${code} before it listened`);
  });
  const listening = (async () => {
    for await (const line of lines) {
      const url = /^listening on (\S+)$/.exec(line)?.[1];
      if (url) return url;
    }
    throw new Error(`loquat ${args[0]} closed its output before it listened`);
  })();
  listening.catch(() => {});
  failed.catch(() => {});
  const url = await Promise.race([listening, failed]);
  return { process: child, url };
}

/** until waits until something holds, for a minute at most. */
export async function until(what: string, holds: () => unknown): Promise<void> {
  for (const deadline = Date.now() + 60_000; !(await holds()); ) {
    if (Date.now() > deadline) throw new Error(`after a minute, this does not hold: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** end ends a process and waits for its end. */
async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGCONT");
  child.kill(signal);
  await exited;
}

/** Server is a running server, with its own data directory and backend, behind a network that can fail. */
export class Server {
  readonly network = new Network();
  readonly log: string[] = [];
  private process!: ChildProcess;

  private constructor(
    readonly folder: string,
    private readonly backend: { process: ChildProcess; url: string },
    private readonly env: Record<string, string>,
  ) {}

  /** The origin for browsers. It stays when the server starts again. */
  get url(): string {
    return this.network.url;
  }

  static async start({ config = {}, provider = {}, env = {} }: Options = {}): Promise<Server> {
    const backend = await start(["backend", "--listen", "127.0.0.1:0"], () => {});
    const server = new Server(await mkdtemp(join(tmpdir(), "loquat-browser-")), backend, env);
    await server.network.open();
    const main = { provider: "reference_generic_compatible", model: "demo", base_url: `${backend.url}/v1`, retry_on_status: { 503: [4] }, ...provider };
    const file = { ...config, providers: { main, ...(config["providers"] as object | undefined) }, server: { public_url: server.url, ...(config["server"] as object | undefined) } };
    await writeFile(join(server.folder, "loquat.json"), JSON.stringify(file));
    await server.begin();
    return server;
  }

  private async begin(): Promise<void> {
    const args = ["serve", "--config", join(this.folder, "loquat.json"), "--listen", "127.0.0.1:0", "--data", join(this.folder, "data")];
    const started = await start(args, (line) => this.log.push(line), this.env);
    this.process = started.process;
    this.network.target = Number(new URL(started.url).port);
  }

  /** kill ends the server as a crash does. */
  async kill(): Promise<void> {
    await end(this.process, "SIGKILL");
  }

  /** restart starts the server on the same data, at the same address. */
  async restart(): Promise<void> {
    await end(this.process, "SIGTERM");
    await this.begin();
  }

  /** freeze stops the server from running; thaw lets it run again. */
  freeze(): void {
    this.process.kill("SIGSTOP");
  }

  thaw(): void {
    this.process.kill("SIGCONT");
  }

  async stop(): Promise<void> {
    await end(this.process, "SIGKILL");
    await end(this.backend.process, "SIGKILL");
    await this.network.close();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** call calls the API past the network that browsers use. */
  async call<T = Record<string, unknown>>(method: string, path: string, body?: unknown, token = ""): Promise<T> {
    const headers: Record<string, string> = body === undefined ? {} : { "content-type": "application/json" };
    if (token) headers["authorization"] = `Bearer ${token}`;
    const answer = await fetch(`http://127.0.0.1:${this.network.target}${path}`, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as T;
  }

  /** text loads a page that is not JSON. */
  async text(path: string): Promise<string> {
    return (await fetch(`http://127.0.0.1:${this.network.target}${path}`)).text();
  }

  /** session creates a session and returns its id. */
  async session({ id, title, model, script, metadata = {}, messages }: NewSession = {}): Promise<string> {
    const overrides = { ...(model && { model }), ...(script && { request_options: { loquat_script: script } }) };
    const all = { ...(title && { title }), ...(Object.keys(overrides).length && { overrides }), ...metadata };
    const created = await this.call<{ session_id: string }>("POST", "/sessions", { ...(id && { session_id: id }), metadata: all, ...(messages && { messages }) });
    return created.session_id;
  }

  /** send sends a message and returns the id of its request. */
  async send(session: string, content: string, fields: Record<string, unknown> = {}): Promise<string> {
    return (await this.call<{ request_id: string }>("POST", `/sessions/${session}/send`, { content, ...fields })).request_id;
  }

  /** messages returns the stored messages of a session. */
  async messages(session: string): Promise<{ role: string; content: string; metadata?: Record<string, unknown> }[]> {
    return (await this.call<{ messages: [] }>("GET", `/sessions/${session}/messages`)).messages;
  }

  /** cancel ends the request that runs on a session, if one does, and waits for its end. */
  async cancel(session: string): Promise<void> {
    const running = (await this.call(`GET`, `/sessions/${session}/messages?limit=1`))["active_request_id"];
    if (running) await this.call("POST", `/requests/${String(running)}/cancel`);
    await this.settled(session);
  }

  /** settled waits until no request runs on a session. */
  async settled(session: string): Promise<void> {
    await until(`no request runs on ${session}`, async () => !(await this.call(`GET`, `/sessions/${session}/messages?limit=1`))["active_request_id"]);
  }

  /** asked returns the chat requests that the backend received. */
  async asked(): Promise<Record<string, unknown>[]> {
    return ((await (await fetch(`${this.backend.url}/_requests`)).json()) as { requests: Record<string, unknown>[] }).requests;
  }
}

/** Network is a proxy on loopback. Its address stays while the server behind it is replaced. */
export class Network {
  /** The port of the server. */
  target = 0;
  url = "";
  /** How long each piece of a call waits on its way to the server, in milliseconds. */
  delay = 0;
  /** How many connections were made. */
  connections = 0;
  private down = false;
  private readonly sockets = new Set<Socket>();
  private readonly server: NetServer = createServer((client) => this.connect(client));

  async open(): Promise<void> {
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  private connect(client: Socket): void {
    this.connections++;
    if (this.down) return void client.destroy();
    const server = createConnection(this.target, "127.0.0.1");
    for (const [from, to] of [[client, server], [server, client]] as const) {
      this.sockets.add(from);
      from.on("data", (data) => (from === client && this.delay ? setTimeout(() => to.write(data), this.delay) : to.write(data)));
      from.on("error", () => to.destroy());
      from.on("close", () => {
        this.sockets.delete(from);
        to.destroy();
      });
    }
  }

  /** cut breaks all connections, and refuses new ones until mend is called. */
  cut(): void {
    this.down = true;
    for (const socket of this.sockets) socket.destroy();
  }

  /** mend lets connections through again. */
  mend(): void {
    this.down = false;
  }

  /** live returns the number of open connections of browsers. */
  get live(): number {
    return this.sockets.size / 2;
  }

  async close(): Promise<void> {
    this.cut();
    this.server.close();
    await once(this.server, "close");
  }
}
