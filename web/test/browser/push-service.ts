// A push service for tests, in the place of Mozilla's: it speaks with Firefox as Autopush does, and takes pushes as RFC 8030 says.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createPublicKey, randomUUID, verify } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { WebSocketServer, type WebSocket } from "ws";

/** What a browser says, as far as this service reads it. */
interface FromBrowser {
  readonly messageType?: string;
  readonly channelID?: string;
  readonly key?: string;
}

/** Channel is one subscription of a browser. */
interface Channel {
  readonly browser: WebSocket;
  /** The key with which the page subscribed: only its owner may push. */
  readonly key: string;
}

/** PushService has the subscriptions of one Firefox that was launched with its preferences. */
export class PushService {
  /** The subscriptions that exist, by the end of their address. */
  readonly channels = new Map<string, Channel>();
  /** How many pushes were passed on to the browser. */
  pushed = 0;

  private constructor(
    private readonly folder: string,
    private readonly server: Server,
    private readonly sockets: WebSocketServer,
  ) {}

  static async start(): Promise<PushService> {
    const folder = await mkdtemp(join(tmpdir(), "loquat-push-"));
    const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
    await promisify(execFile)("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]);
    const server = createServer({ key: await readFile(key), cert: await readFile(cert) });
    const sockets = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    const service = new PushService(folder, server, sockets);
    server.on("request", (request, answer) => void service.take(request, answer));
    sockets.on("connection", (browser) => browser.on("message", (text) => service.answer(browser, JSON.parse(String(text)) as FromBrowser)));
    server.listen(0, "127.0.0.1");
    await Promise.all([once(server, "listening"), sockets.address() ?? once(sockets, "listening")]);
    return service;
  }

  /** The file with the certificate that a server has to trust. */
  get certificate(): string {
    return join(this.folder, "cert.pem");
  }

  /** The preferences with which Firefox uses this service, and lets every page notify. */
  get preferences(): Record<string, unknown> {
    const { port } = this.sockets.address() as AddressInfo;
    return {
      "dom.push.enabled": true,
      "dom.push.connection.enabled": true,
      "dom.push.serverURL": `ws://127.0.0.1:${port}/`,
      "dom.push.testing.allowInsecureServerURL": true,
      "permissions.default.desktop-notification": 1,
      "alerts.useSystemBackend": false, // a test machine has no desktop that shows notifications
    };
  }

  async stop(): Promise<void> {
    for (const browser of this.sockets.clients) browser.terminate();
    this.sockets.close();
    this.server.closeAllConnections();
    this.server.close();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** answer answers a browser: https://mozilla-services.github.io/autopush-rs/ has the protocol. */
  private answer(browser: WebSocket, { messageType, channelID = "", key = "" }: FromBrowser): void {
    const say = (message: object): void => browser.send(JSON.stringify(message));
    switch (messageType) {
      case undefined: // a ping
        return say({});
      case "hello":
        return say({ messageType, status: 200, uaid: randomUUID().replaceAll("-", ""), use_webpush: true, broadcasts: {} });
      case "register":
        this.channels.set(channelID, { browser, key });
        return say({ messageType, status: 200, channelID, pushEndpoint: `https://127.0.0.1:${(this.server.address() as AddressInfo).port}/push/${channelID}` });
      case "unregister":
        this.channels.delete(channelID);
        return say({ messageType, status: 200, channelID });
    }
  }

  /** take passes a push on to its browser. */
  private async take(request: IncomingMessage, answer: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const id = request.url!.slice("/push/".length);
    const channel = this.channels.get(id);
    if (!channel) return void answer.writeHead(410).end();
    try {
      checkSender(request, channel.key);
      assert.equal(request.headers["content-encoding"], "aes128gcm");
    } catch (thrown) {
      return void answer.writeHead(403).end(String(thrown));
    }
    channel.browser.send(JSON.stringify({ messageType: "notification", channelID: id, version: randomUUID(), data: Buffer.concat(parts).toString("base64url"), headers: { encoding: "aes128gcm" } }));
    this.pushed++;
    answer.writeHead(201, { location: request.url! }).end();
  }
}

/** checkSender checks that a push is signed with the key of its subscription, for this service, and for a day at most: RFC 8292. */
function checkSender({ headers }: IncomingMessage, key: string): void {
  const [, token = "", sender = ""] = /^vapid t=([^,\s]+),\s*k=(\S+)$/.exec(headers.authorization ?? "") ?? [];
  assert.equal(sender, key.replace(/=+$/, ""), "another server pushes");
  const point = Buffer.from(key, "base64url");
  const x = point.subarray(1, 33).toString("base64url"), y = point.subarray(33).toString("base64url");
  const [head = "", claims = "", signature = ""] = token.split(".");
  const publicKey = createPublicKey({ key: { kty: "EC", crv: "P-256", x, y }, format: "jwk" });
  assert.ok(verify("sha256", Buffer.from(`${head}.${claims}`), { key: publicKey, dsaEncoding: "ieee-p1363" }, Buffer.from(signature, "base64url")), "the signature is wrong");
  const { aud, exp, sub } = JSON.parse(Buffer.from(claims, "base64url").toString()) as { aud: string; exp: number; sub: string };
  assert.equal(aud, `https://${headers.host}`);
  assert.match(sub, /^mailto:/);
  const left = exp - Date.now() / 1000;
  assert.ok(left > 0 && left <= 24 * 60 * 60, `the token ends in ${left} s`);
}
