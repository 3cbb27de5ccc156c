// Texts that try to run code or to call another host, and a watch that sees whether one did.
import type { Page as DriverPage } from "puppeteer-core";

/** The host that nothing may ask. */
const host = "evil.test";

/** Each makes a payload of a script and an address. The script has no quotes. */
const makers: readonly ((run: string, url: string) => string)[] = [
  (x) => `<script>${x}</script>`,
  (x) => `"><script>${x}</script>`,
  (x) => `</title></textarea></style><script>${x}</script>`,
  (_, u) => `<script src=${u}></script>`,
  (x) => `<img src=x onerror=${x}>`,
  (x) => `<img src=x: onerror="${x}">`,
  (_, u) => `<img src=${u}>`,
  (_, u) => `<img srcset="${u} 2x">`,
  (x) => `<svg onload=${x}>`,
  (x) => `<svg><script>${x}</script></svg>`,
  (x) => `<svg><animate onbegin=${x} attributeName=x dur=1s>`,
  (_, u) => `<svg><image href=${u}></image></svg>`,
  (_, u) => `<svg><use href=${u}#x></use></svg>`,
  (x) => `<svg><style><img src=x onerror=${x}></style></svg>`,
  (x) => `<math><mtext><table><mglyph><style><img src=x onerror=${x}>`,
  (x) => `<math><a xlink:href=javascript:${x}>click</a></math>`,
  (x) => `<iframe src="javascript:${x}"></iframe>`,
  (x) => `<iframe srcdoc="<script>parent.${x}</script>"></iframe>`,
  (_, u) => `<iframe src=${u}></iframe>`,
  (_, u) => `<object data=${u}></object>`,
  (_, u) => `<embed src=${u}>`,
  (_, u) => `<link rel=stylesheet href=${u}>`,
  (_, u) => `<style>@import url(${u});</style>`,
  (_, u) => `<div style="background:url(${u})">x</div>`,
  (x) => `<body onload=${x}>`,
  (x) => `<details open ontoggle=${x}>x</details>`,
  (x) => `<video><source onerror=${x}></video>`,
  (_, u) => `<video poster=${u}></video>`,
  (_, u) => `<audio src=${u} autoplay></audio>`,
  (x) => `<input autofocus onfocus=${x}>`,
  (x) => `<form action=javascript:${x}><button>x</button></form>`,
  (_, u) => `<meta http-equiv=refresh content="0;url=${u}">`,
  (_, u) => `<base href=${u}><a href=x>x</a>`,
  (x) => `<marquee onstart=${x}>x</marquee>`,
  (x) => `<template><script>${x}</script></template>`,
  (x) => `<noscript><p title="</noscript><img src=x onerror=${x}>">`,
  (x) => `<!--><img src=x onerror=${x}>-->`,
  (x) => `<![CDATA[><img src=x onerror=${x}>]]>`,
  (x) => `&lt;img src=x onerror=${x}&gt;`,
  (x) => `\u0000<\u0000script>${x}</script>`,
  (x) => `[link](javascript:${x})`,
  (x) => `[link](JaVaScRiPt:${x})`,
  (x) => `[link](java\tscript:${x})`,
  (x) => `[link](&#106;avascript:${x})`,
  (x) => `[link](<javascript:${x}>)`,
  (x) => `[link](data:text/html,<script>${x}</script>)`,
  (x) => `[link](vbscript:${x})`,
  (x) => `<javascript:${x}>`,
  (x) => `[link][r]\n\n[r]: javascript:${x}`,
  (x) => `[a](https://example.com "\\" onmouseover=${x} \\"")`,
  (_, u) => `![picture](${u})`,
  (x) => `![picture](javascript:${x})`,
  (x) => `![x" onerror="${x}](x.png)`,
  (x) => `![svg](data:image/svg+xml,<svg/onload=${x}>)`,
  (_, u) => `![picture][p]\n\n[p]: ${u}`,
  (x) => `| a |\n|---|\n| <img src=x onerror=${x}> |`,
  (x) => `| a |\n|:--" onclick=${x} :|\n| [x](javascript:${x}) |`,
  (x) => `\`\`\`html\n</code></pre><script>${x}</script>\n\`\`\``,
  (x) => `\`\`\`"><img src=x onerror=${x}>\ncode\n\`\`\``,
  (x) => `$\\href{javascript:${x}}{x}$`,
  (_, u) => `$$\\includegraphics{${u}}$$`,
  (x) => `$$\\text{<img src=x onerror=${x}>}$$`,
  (x) => `$\\class{x" onmouseover="${x}}{y}$`,
  (_, u) => `$\\style{background:url(${u})}{x}$`,
  (x) => `\`\`\`mermaid\ngraph TD; A["<img src=x onerror=${x}>"] --> B\n\`\`\``,
  (x) => `\`\`\`mermaid\n%%{init: {"securityLevel": "loose"}}%%\ngraph TD\n  A-->B\n  click A href "javascript:${x}"\n\`\`\``,
  (_, u) => `\`\`\`mermaid\n%%{init: {"themeCSS": "@import url(${u});"}}%%\ngraph TD; A-->B\n\`\`\``,
  (x) => `[^1]\n\n[^1]: <img src=x onerror=${x}>`,
  (x) => `\u202e<img src=x onerror=${x}>\u202c`,
  (x) => `{{constructor.constructor(${JSON.stringify(x)})()}}`,
];

/** The payloads. The n-th reports its number if it runs, and asks the other host for its number if it loads. */
export const payloads: readonly string[] = makers.map((make, n) => make(`(globalThis.pwned=globalThis.pwned||[]).push(${n})`, `http://${host}/${n}`));

/** Watch records what payloads did in a window. */
export class Watch {
  readonly requests: string[] = [];
  readonly dialogs: string[] = [];

  /** of watches a window, whose page comes from the origin own. */
  constructor(private readonly driver: DriverPage, own: string) {
    driver.on("request", (request) => {
      const url = new URL(request.url());
      if (/^(https?|wss?|ftp):$/.test(url.protocol) && url.host !== new URL(own).host) this.requests.push(request.url());
    });
    driver.on("dialog", (dialog) => {
      this.dialogs.push(dialog.message());
      void dialog.dismiss().catch(() => {});
    });
  }

  /** ran returns the numbers of the payloads that ran, in any frame. */
  async ran(): Promise<number[]> {
    const frames = this.driver.frames().map((frame) => frame.evaluate(() => (globalThis as { pwned?: number[] }).pwned ?? []).catch(() => []));
    return [...new Set((await Promise.all(frames)).flat())];
  }

  /** traps returns what would run only after a click: attributes with handlers, and addresses with code. */
  async traps(): Promise<string[]> {
    return this.driver.evaluate(() => [...document.querySelectorAll("body *")].flatMap((element) => [...element.attributes]
      .filter(({ name, value }) => /^on/i.test(name) || (/(href|src|action|data)$/i.test(name) && /^\s*(javascript|vbscript|data:text)/i.test(value.replace(/[\s\u0000]/g, ""))))
      .map(({ name, value }) => `<${element.tagName} ${name}=${value}>`)));
  }
}
