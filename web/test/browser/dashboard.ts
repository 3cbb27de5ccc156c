// Makes the picture of the dashboard in docs/pictures.md: Prometheus watches a server under load, and uPlot, which draws
// Grafana's charts too, draws what it answers to the dashboard's queries.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Browser } from "puppeteer-core";
import type uPlot from "uplot";
import { Server, until } from "./program.ts";

/** How long the server works before the picture is made, in seconds. */
const seconds = 180;
/** The parts of the dashboard that are shown: those to which any server has something to say. */
const parts = ["Requests", "HTTP", "Store", "Machine"];

interface Target {
  expr: string;
  legendFormat: string;
}

interface Panel {
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig?: { defaults: { unit: string } };
  targets?: Target[];
}

/** Chart is a panel with its lines: the times, and a list of values for each name. */
interface Chart extends Pick<Panel, "title" | "gridPos"> {
  unit: string;
  names: string[];
  data: (number | null)[][];
}

/** Series is a line, as Prometheus answers it: its labels, and values with their times in seconds. */
interface Series {
  metric: Record<string, string>;
  values: [number, string][];
}

/** Ask gets the answer of Prometheus to a path. */
type Ask = (path: string) => Promise<Series[]>;

/** dashboardPicture puts a server under load and writes a picture of the panels of a dashboard. */
export async function dashboardPicture(browser: Browser, dashboard: string, file: string): Promise<void> {
  const shown = partsOf(JSON.parse(await readFile(dashboard, "utf8")).panels);
  const server = await Server.start({ config: { limits: { max_running_requests: 40 }, prices: { demo: { input: 2, output: 8 } } }, provider: { rate_limit_retry_delays_seconds: [1, 2], stream_recovery: { mode: "aggressive" } }, env: { GOMEMLIMIT: "256MiB" } });
  try {
    const charts = await withPrometheus(server, async (ask) => {
      const began = Date.now() / 1000;
      await load(server);
      return Promise.all(shown.map((panel) => chartOf(panel, ask, began + 15, Date.now() / 1000)));
    });
    const page = await browser.newPage();
    await page.setViewport({ width: 1280, height: 26 * Math.max(...shown.map(({ gridPos: { y, h } }) => y + h)) + 8 });
    await page.setContent(`<style>${style}</style><main></main>`);
    const require = createRequire(import.meta.url);
    await page.addStyleTag({ path: require.resolve("uplot/dist/uPlot.min.css") });
    await page.addScriptTag({ path: require.resolve("uplot/dist/uPlot.iife.min.js") });
    await page.evaluate("globalThis.__name = (f) => f"); // the loader of TypeScript calls it in functions with names
    await page.evaluate(draw, charts);
    await page.screenshot({ path: file, type: "webp", quality: 50 });
    await page.close();
  } finally {
    await server.stop();
  }
}

/** partsOf returns the panels of the parts that are shown, with their rows. */
function partsOf(panels: Panel[]): Panel[] {
  let part = "";
  return panels.filter((panel) => {
    if (panel.type === "row") part = panel.title;
    return parts.includes(part);
  });
}

/** load sends messages in waves. Some requests are cancelled, some meet a backend that fails, and some break off. */
async function load(server: Server): Promise<void> {
  const end = Date.now() + seconds * 1000;
  const chats: Promise<void>[] = [];
  for (let n = 0; Date.now() < end; n++) {
    chats.push(chat(server, n));
    const wave = 1 + Math.sin((2 * Math.PI * n) / 150);
    await sleep(250 + 500 * wave);
  }
  await Promise.all(chats);
}

/** chat is one session with one reply. */
async function chat(server: Server, n: number): Promise<void> {
  const fault = n % 11 === 3 ? { attempts: [{ status: 503 }, {}] } : n % 13 === 5 ? { attempts: [{ status: 429, retry_after: 1 }, {}] } : n % 17 === 7 ? { status: 400 } : n % 19 === 9 ? { attempts: [{ drop_after: 20 }, {}] } : {};
  const id = await server.session({ title: `Chat ${n}`, script: { text: "Once upon a time, a clockmaker lived in a small town by the sea. ".repeat(10), chunks: 150, rate: 20 + (n % 5) * 10, id: `chat ${n}`, ...fault } });
  const { request_id } = await server.call<{ request_id: string }>("POST", `/sessions/${id}/send`, { content: "Tell me a story." });
  const following = server.text(`/events?request_id=${request_id}&wait=10`);
  if (n % 9 === 4) {
    await sleep(1500);
    await server.call("POST", `/requests/${request_id}/cancel`);
  }
  await following;
}

/** withPrometheus calls what with a function that asks Prometheus, which reads the metrics of a server once a second. */
async function withPrometheus<T>(server: Server, what: (ask: Ask) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "loquat-prometheus-"));
  const address = await freeAddress();
  const scrape = { job_name: "loquat", static_configs: [{ targets: [new URL(server.url).host], labels: { instance: "chat.example" } }] };
  await writeFile(join(folder, "prometheus.yml"), JSON.stringify({ global: { scrape_interval: "1s" }, scrape_configs: [scrape] }));
  const prometheus = spawn("prometheus", [`--config.file=${join(folder, "prometheus.yml")}`, `--storage.tsdb.path=${join(folder, "data")}`, `--web.listen-address=${address}`], { stdio: "ignore" });
  const exit = once(prometheus, "exit");
  try {
    await until("Prometheus is ready", () => fetch(`http://${address}/-/ready`).then((answer) => answer.ok, () => false));
    return await what(async (path) => ((await (await fetch(`http://${address}${path}`)).json()) as { data: { result: Series[] } }).data.result);
  } finally {
    prometheus.kill();
    await exit;
    await rm(folder, { recursive: true, force: true });
  }
}

async function freeAddress(): Promise<string> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  return `127.0.0.1:${port}`;
}

/** chartOf asks Prometheus for the lines of a panel, as Grafana does. */
async function chartOf(panel: Panel, ask: Ask, from: number, to: number): Promise<Chart> {
  const start = Math.ceil(from);
  const times = Array.from({ length: Math.floor(to) - start }, (_, i) => start + i);
  const chart: Chart = { title: panel.title, gridPos: panel.gridPos, unit: panel.fieldConfig?.defaults.unit ?? "", names: [], data: [times] };
  for (const { expr, legendFormat } of panel.targets ?? []) {
    const query = expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "15s");
    for (const { metric, values } of await ask(`/api/v1/query_range?${new URLSearchParams({ query, start: String(start), end: String(times.at(-1)), step: "1" })}`)) {
      chart.names.push(legendFormat.replace(/{{(\w+)}}/g, (_, label: string) => metric[label] ?? ""));
      const at = new Map(values);
      chart.data.push(times.map((time) => (Number.isFinite(Number(at.get(time) ?? NaN)) ? Number(at.get(time)) : null)));
    }
  }
  return chart;
}

const style = `
  body { margin: 0; background: #f4f5f5; color: #24292e; font: 12px "DejaVu Sans", sans-serif; }
  section { position: absolute; box-sizing: border-box; padding: 6px 8px; background: #fff; border: 1px solid #e4e5e6; border-radius: 2px; }
  section.row { background: none; border: 0; font-weight: bold; }
  h2 { margin: 0 0 2px; font-size: 12px; }
  ul { display: flex; flex-wrap: wrap; gap: 0 10px; margin: 0; padding: 0; list-style: none; font-size: 10px; }
  li::before { content: ""; display: inline-block; width: 12px; height: 3px; margin: 0 4px 3px 0; background: var(--line); }
  .uplot { font: inherit; }`;

/** draw draws the charts at their places. It runs in the page. */
function draw(charts: Chart[]): void {
  const plot = (globalThis as unknown as { uPlot: typeof uPlot }).uPlot;
  const colours = ["#56a64b", "#e0b400", "#3274d9", "#e02f44", "#8f3bb8", "#fa6400", "#37872d"];
  const unit = 26; // pixels of a row of the grid
  const format: Record<string, (value: number) => string> = {
    s: (value) => (value < 1 ? `${Number((value * 1000).toPrecision(3))} ms` : `${Number(value.toPrecision(3))} s`),
    bytes: (value) => (value >= 1e9 ? `${Number((value / 1e9).toPrecision(3))} GB` : `${Number((value / 1e6).toPrecision(3))} MB`),
    percentunit: (value) => `${Number((value * 100).toPrecision(3))} %`,
    reqps: (value) => `${Number(value.toPrecision(3))}/s`,
  };
  for (const chart of charts) {
    const { x, y, w, h } = chart.gridPos;
    const box = document.createElement("section");
    const width = (1272 * w) / 24 - 8;
    Object.assign(box.style, { left: `${8 + (1272 * x) / 24}px`, top: `${8 + unit * y}px`, width: `${width}px`, height: `${unit * h - 8}px` });
    box.append(Object.assign(document.createElement("h2"), { textContent: chart.title }));
    document.querySelector("main")!.append(box);
    if (!chart.names.length) {
      box.className = chart.unit ? "" : "row";
      if (chart.unit) box.append("No data");
      continue;
    }
    const line = (i: number): string => colours[i % colours.length]!;
    const axis = { font: "10px DejaVu Sans, sans-serif", grid: { stroke: "#eceded", width: 1 }, ticks: { show: false } };
    const value = format[chart.unit] ?? ((number: number) => String(Number(number.toPrecision(3))));
    new plot({
      width: width - 18, height: unit * h - 52, legend: { show: false }, cursor: { show: false },
      scales: { y: { range: (_: uPlot, _least: number, most: number) => [0, most > 0 ? most * 1.15 : 1] } },
      axes: [{ ...axis, values: (_, times) => times.map((time) => new Date(time * 1000).toISOString().slice(11, 19)), space: 70, size: 22 }, { ...axis, size: 54, values: (_, values) => values.map(value) }],
      series: [{}, ...chart.names.map((label, i) => ({ label, stroke: line(i), width: 1.5, spanGaps: false, points: { show: false } }))],
    }, chart.data as uPlot.AlignedData, box);
    const legend = box.appendChild(document.createElement("ul"));
    chart.names.forEach((name, i) => {
      const item = legend.appendChild(Object.assign(document.createElement("li"), { textContent: name }));
      item.style.setProperty("--line", line(i));
    });
  }
}
