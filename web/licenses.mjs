// Collects the licences of the packages that are in the built files.
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";

/** packagesOf returns the folders of the packages that contribute bytes to the outputs. */
function packagesOf(metafiles) {
  const found = new Set();
  for (const { outputs } of metafiles) {
    for (const { inputs } of Object.values(outputs)) {
      for (const [name, { bytesInOutput }] of Object.entries(inputs)) {
        const match = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(name);
        if (match && bytesInOutput > 0) found.add(match[1]);
      }
    }
  }
  return [...found].sort();
}

/** licenceText returns the licence file of a package, else the part of its README that has the licence. */
async function licenceText(folder) {
  const entries = await readdir(folder);
  const file = entries.find((entry) => /^(licen[cs]e|copying)([._-][\w.-]+)?$/i.test(entry));
  if (file) return readFile(join(folder, file), "utf8");
  const readme = entries.find((entry) => /^readme(\.\w+)?$/i.test(entry));
  const section = readme && /^#+ *licen[cs]e[^\n]*\n([\s\S]*)/im.exec(await readFile(join(folder, readme), "utf8"))?.[1];
  return section && /permission is hereby granted|redistribution and use/i.test(section) ? section : undefined;
}

/** licenses returns name, version, licence and licence text of each bundled package. It fails if a package has no licence text. */
export async function licenses(root, metafiles) {
  const out = [];
  for (const folder of packagesOf(metafiles)) {
    const { name, version, license } = JSON.parse(await readFile(join(root, folder, "package.json"), "utf8"));
    const text = await licenceText(join(root, folder));
    if (!text) throw new Error(`${folder}: the package has no licence text, so the client must not contain it`);
    out.push({ name, version, license, text });
  }
  return out;
}

const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** licensesPage returns the page at /licenses. */
export function licensesPage(all, style) {
  const items = all.map(({ name, version, license, text }) =>
    `<section><h2>${escape(name)} ${escape(version)}</h2><p>${escape(String(license ?? ""))}</p><pre>${escape(text.trim())}</pre></section>`);
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Licences – Loquat</title>
<link rel="stylesheet" href="${style}">
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<body class="page">
<main>
<p><a href="/">Loquat</a></p>
<h1>Licences</h1>
<p>The web client contains these packages.</p>
${items.join("\n")}
</main>
`;
}
