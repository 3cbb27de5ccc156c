// Builds the web client into internal/web/dist, which the server embeds.
//
//   node web/build.mjs [--sizes]
//
// It fails if the page with its first coloured code is larger than the limit below.
//
// Names of scripts and styles contain a hash of their content, so browsers keep them for
// ever. Each text file has a .br and a .gz twin.
import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { files as iconFiles } from "./icons.mjs";
import { licenses, licensesPage } from "./licenses.mjs";

const web = dirname(fileURLToPath(import.meta.url));
const root = dirname(web);
const dist = join(root, "internal", "web", "dist");
const target = ["chrome120", "firefox115", "safari16.4"];
/** The most bytes, compressed with brotli, that a browser loads until a first reply with code is shown in colours. */
const limit = 120_000;
const compressed = new Set([".js", ".css", ".html", ".svg", ".webmanifest"]);

const common = {
  absWorkingDir: root,
  bundle: true,
  minify: true,
  format: "esm",
  target,
  conditions: ["source", "production"],
  define: { "process.env.NODE_ENV": '"production"' },
  legalComments: "none",
  metafile: true,
  write: false,
  outdir: dist,
  logLevel: "warning",
  logOverride: { "ignored-bare-import": "silent" }, // common.ts imports modules only so that they come into one file
};

/** small gives the parser small modules in place of packages. */
const small = {
  name: "small",
  setup({ onResolve }) {
    onResolve({ filter: /^entities$/ }, () => ({ path: join(web, "src", "markdown", "entities.ts") }));
    onResolve({ filter: /^punycode\.js$/ }, () => ({ path: join(web, "src", "markdown", "hosts.ts") }));
  },
};

const result = await build({
  ...common,
  plugins: [small],
  entryPoints: { app: "web/src/main.tsx", style: "web/src/style/index.css", worker: "web/src/wire/worker.ts" },
  splitting: true,
  entryNames: "assets/[name]-[hash]",
  chunkNames: "assets/[name]-[hash]",
  assetNames: "assets/[name]-[hash]",
});

const outputs = result.metafile.outputs;
const pathOf = (output) => "/" + output.replace(/^internal\/web\/dist\//, "");

/** entry returns the output of an entry point. */
function entry(source) {
  const found = Object.keys(outputs).find((name) => outputs[name].entryPoint === source);
  if (!found) throw new Error(`the build made no output of ${source}`);
  return found;
}

/** withStatic returns an output and all outputs that it imports statically. */
function withStatic(name, seen = new Set()) {
  if (seen.has(name)) return seen;
  seen.add(name);
  for (const { path, kind } of outputs[name].imports) if (kind === "import-statement" && outputs[path]) withStatic(path, seen);
  return seen;
}

const app = entry("web/src/main.tsx");
const style = entry("web/src/style/index.css");
const worker = entry("web/src/wire/worker.ts");
const first = [...withStatic(app), style];

const files = new Map(result.outputFiles.map((file) => [file.path.slice(dist.length + 1), Buffer.from(file.contents)]));
const icon = await readFile(join(web, "icon.svg"));
files.set("icon.svg", icon);
for (const [name, bytes] of Object.entries(iconFiles())) files.set(name, bytes);
files.set("manifest.webmanifest", await readFile(join(web, "manifest.json")));

const page = await readFile(join(web, "index.html"), "utf8");
files.set("index.html", Buffer.from(fill(page, {
  app: pathOf(app),
  style: pathOf(style),
  worker: pathOf(worker),
  icon: "data:image/svg+xml," + icon.toString().trim().replaceAll('"', "'").replaceAll("#", "%23"), // Chromium loads a file again with each new address of the page
  preload: [...withStatic(app)].filter((name) => name !== app).map((name) => `<link rel="modulepreload" href="${pathOf(name)}">`).join("\n  "),
})));

// The frame of diagrams is sandboxed and has no origin, so its script is one classic file.
const frame = await build({ ...common, entryPoints: { mermaid: "web/src/frame/mermaid.ts" }, format: "iife" });
files.set("frame/mermaid.js", Buffer.from(frame.outputFiles[0].contents));
files.set("frame/mermaid.html", await readFile(join(web, "src", "frame", "mermaid.html")));

const service = await build({
  ...common,
  entryPoints: { sw: "web/src/wire/service-worker.ts" },
  define: { ...common.define, SHELL: JSON.stringify(["/", ...first.map(pathOf), "/icon.svg", "/manifest.webmanifest"]) },
});
files.set("sw.js", Buffer.from(service.outputFiles[0].contents));
const bundled = await licenses(root, [result.metafile, frame.metafile, service.metafile]);
files.set("licenses.html", Buffer.from(licensesPage(bundled, pathOf(style))));

await write(files);
// The packages in the page, for the licences and the bill of materials of a release.
await writeFile(join(root, "node_modules", ".loquat-packages.json"), JSON.stringify(bundled, null, 1));
report();

/** fill replaces each {{name}} of a page; an unknown name is an error. */
function fill(text, values) {
  return text.replace(/\{\{(\w+)\}\}/g, (_, name) => {
    if (!(name in values)) throw new Error(`index.html: the build has no value for ${name}`);
    return values[name];
  });
}

async function write(all) {
  await mkdir(dist, { recursive: true });
  for (const name of await readdir(dist)) if (name !== ".gitignore") await rm(join(dist, name), { recursive: true });
  const brotli = promisify(brotliCompress);
  const zip = promisify(gzip);
  for (const [name, bytes] of all) {
    const file = join(dist, name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, bytes);
    if (!compressed.has(extname(name))) continue;
    await writeFile(file + ".br", await brotli(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }));
    await writeFile(file + ".gz", await zip(bytes, { level: 9 }));
  }
}

/** report prints what a browser loads first, and the chunks that it loads on demand. It fails if the first ones are too large. */
async function report() {
  const size = async (name) => (await readFile(join(dist, name + ".br"))).length;
  const sizeOf = async (all) => (await Promise.all([...all].map((name) => size(pathOf(name).slice(1))))).reduce((a, b) => a + b, 0);
  const kib = (bytes) => (bytes / 1024).toFixed(1).padStart(7) + " KiB";
  const page = (await size("index.html")) + (await sizeOf(first));
  const later = new Set([entry("web/src/markdown/highlight.ts"), entry("node_modules/highlight.js/es/languages/python.js")].flatMap((name) => [...withStatic(name)]));
  const colours = await sizeOf([...later].filter((name) => !first.includes(name)));
  console.log(`web client: first load ${kib(page).trim()} compressed with brotli, in ${first.length + 1} files; ${kib(page + colours).trim()} with the first coloured code`);
  if (page + colours > limit) {
    console.error(`web client: the first load with coloured code has ${page + colours} bytes, more than the limit of ${limit}: load on demand what a first reply does not need (--sizes lists the parts)`);
    process.exitCode = 1;
  }
  if (!process.argv.includes("--sizes")) return;
  for (const name of Object.keys(outputs)) console.log(`${kib(await size(pathOf(name).slice(1)))}  ${first.includes(name) ? "first " : "demand"}  ${pathOf(name)}`);
  const inputs = Object.entries(outputs).flatMap(([name, o]) => Object.entries(o.inputs).map(([input, { bytesInOutput }]) => ({ input, bytesInOutput, first: first.includes(name) })));
  inputs.sort((a, b) => b.bytesInOutput - a.bytesInOutput);
  for (const { input, bytesInOutput, first } of inputs.slice(0, 40)) console.log(`${kib(bytesInOutput)}  ${first ? "first " : "demand"}  ${input}  (not compressed)`);
}
