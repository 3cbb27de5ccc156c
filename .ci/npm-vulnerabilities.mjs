#!/usr/bin/env node
// Looks for known vulnerabilities in the npm packages of a lockfile: those of the page, of the client and of its
// examples, and of what builds and tests them: .ci/npm-vulnerabilities.mjs [FOLDER]
//
// A finding that cannot be fixed by an update is justified in docs/decisions.md, by its id (GHSA-…), and is not
// counted. Exit codes: 0 there is none, 3 there are some, 77 the registry's service of advisories could not be
// reached, so nothing is known; anything else is a failure. npm_config_registry names another registry,
// VULNERABILITY_SECONDS another limit for the wait on the network.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = process.argv[2] ?? fileURLToPath(new URL("..", import.meta.url));
const seconds = Number(process.env.VULNERABILITY_SECONDS || 60);

function unreachable(reason) {
  console.log(`NOT CHECKED for known vulnerabilities of npm packages: the registry's advisories could not be read (${reason}).`);
  console.log("Run .ci/npm-vulnerabilities.mjs where they can be, or set npm_config_registry to a registry that has them.");
  process.exit(77);
}

if (!existsSync(join(folder, "package-lock.json"))) {
  console.log(`${folder} has no package-lock.json`);
  process.exit(1);
}
const args = ["audit", "--json", "--package-lock-only", "--fetch-retries=0", `--fetch-timeout=${seconds * 1000}`];
const npm = spawnSync("npm", args, { cwd: folder, encoding: "utf8", maxBuffer: 64 << 20, timeout: 3 * seconds * 1000 });
if (npm.error) {
  if (npm.error.code === "ETIMEDOUT") unreachable(`npm audit did not end within ${3 * seconds} seconds`);
  console.log(`npm audit could not be run: ${npm.error.message}`);
  process.exit(1);
}
let report;
try {
  report = JSON.parse(npm.stdout);
} catch {
  unreachable("the answer is not a report");
}
if (!report.metadata?.vulnerabilities) unreachable(report.message ?? "the answer is not a report");

const decisions = join(folder, "docs/decisions.md");
const justified = existsSync(decisions) ? readFileSync(decisions, "utf8") : "";
const found = new Map();
for (const { via } of Object.values(report.vulnerabilities)) {
  for (const advisory of via) {
    if (typeof advisory === "string") continue; // the package depends on another one that is listed
    const id = /GHSA(-[0-9a-z]{4}){3}/.exec(advisory.url)?.[0] ?? String(advisory.source);
    found.set(id, `${id} ${advisory.severity}: ${advisory.name} ${advisory.range}: ${advisory.title} ${advisory.url}`);
  }
}
const open = [...found.keys()].filter((id) => !justified.includes(id));
for (const id of open) console.log(found.get(id));
console.log(`${report.metadata.dependencies.total} packages: ${open.length} known vulnerabilities, and ${found.size - open.length} that docs/decisions.md justifies`);
process.exit(open.length > 0 ? 3 : 0);
