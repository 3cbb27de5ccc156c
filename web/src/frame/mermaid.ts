/**
 * The script of the frame that draws diagrams. The frame is sandboxed: it has no origin, no storage and, by its policy,
 * no network. It draws what its parent sends, and answers with the size or an error.
 *
 * The build bundles this file into one classic script, because a module would have to be fetched with an origin.
 */
import mermaid from "mermaid";

const maxSource = 20_000;

function answer(message: { type: "ready" } | { type: "size"; height: number } | { type: "error"; reason: string }): void {
  parent.postMessage(message, "*");
}

async function draw(source: string, dark: boolean): Promise<void> {
  if (source.length > maxSource) throw new Error("too large");
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    theme: dark ? "dark" : "default",
    htmlLabels: false,
    flowchart: { htmlLabels: false },
    maxTextSize: maxSource,
    maxEdges: 500,
    suppressErrorRendering: true,
    // The source of a diagram may not change these.
    secure: ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "fontFamily", "themeCSS", "altFontFamily"],
  });
  const { svg } = await mermaid.render("diagram", source);
  const image = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  // A diagram is a picture here: its links would lead the frame away.
  for (const link of image.querySelectorAll("a")) for (const name of link.getAttributeNames()) if (/href|target/i.test(name)) link.removeAttribute(name);
  document.body.replaceChildren(document.importNode(image, true));
  new ResizeObserver(report).observe(document.body);
  report();
}

function report(): void {
  answer({ type: "size", height: document.body.getBoundingClientRect().height });
}

addEventListener("message", (event) => {
  const data = event.data as { type?: unknown; source?: unknown; dark?: unknown } | null;
  if (event.source !== parent || data?.type !== "draw" || typeof data.source !== "string") return;
  draw(data.source, data.dark === true).catch((error: unknown) => {
    answer({ type: "error", reason: error instanceof Error ? error.message : "unknown" });
  });
});

answer({ type: "ready" });
