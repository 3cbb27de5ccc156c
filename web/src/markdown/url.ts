/** What a target in a text may do. All targets come from hostile text. */

interface Target {
  /** The address as the browser would open it. */
  readonly url: string;
  /** Where it leads, in a form that cannot look like another host: ASCII, without a user name. */
  readonly place: string;
}

const maxUrl = 4_000;
const maxDataUrl = 2_000_000;

/** linkTarget returns the target of a link, or null for one that must not be a link: only http, https and mailto with an absolute address may. */
export function linkTarget(href: string): Target | null {
  const url = parse(href);
  if (!url) return null;
  if (url.protocol === "mailto:") return { url: url.href, place: url.pathname };
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  return { url: url.href, place: url.host };
}

type ImageTarget =
  | { readonly kind: "shown"; readonly url: string }
  | { readonly kind: "remote"; readonly url: string; readonly place: string }
  | { readonly kind: "refused" };

const dataImage = "data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}";
const onlyDataImage = RegExp(`^${dataImage}$`);
/** The targets of images whose bytes are in a text. */
export const dataImages = RegExp(`(?<=\\]\\(<?)${dataImage}(?=[>)\\s])`, "g");

/** imageTarget returns how an image is shown: at once if its bytes are in the text, on request if they are elsewhere. */
export function imageTarget(src: string): ImageTarget {
  if (src.length <= maxDataUrl && onlyDataImage.test(src)) {
    return { kind: "shown", url: src };
  }
  const url = parse(src);
  if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) return { kind: "refused" };
  return { kind: "remote", url: url.href, place: url.host };
}

function parse(href: string): URL | null {
  if (href.length > maxUrl) return null;
  try {
    return new URL(href);
  } catch {
    return null;
  }
}

/**
 * misleads reports whether a link's text may be taken for another place than its target: it names another host, it
 * reverses its own letters, or the target's host is not in ASCII.
 */
export function misleads(text: string, target: Target): boolean {
  if (/[\u202A-\u202E\u2066-\u2069]/.test(text)) return true;
  const host = target.place.replace(/:\d+$/, "");
  if (/(^|\.)xn--/.test(host)) return true;
  const named = hostIn(text);
  return named !== null && bare(named) !== bare(host.slice(host.lastIndexOf("@") + 1));
}

function hostIn(text: string): string | null {
  const trimmed = text.trim();
  const candidate = /[a-z][a-z0-9+.-]*:\/\/\S+/i.exec(trimmed)?.[0] ?? (/^[^\s/]+\.[^\s]+$/.test(trimmed) ? "http://" + trimmed : null);
  if (candidate === null) return null;
  const mail = /^http:\/\/[^\s/@]+@([^\s/]+)$/.exec(candidate);
  const url = parse(mail ? "http://" + mail[1] : candidate);
  return url && /\.[a-z0-9-]{2,}$/i.test(url.hostname) ? url.hostname : null;
}

function bare(host: string): string {
  return host.toLowerCase().replace(/^www\./, "").replace(/\.$/, "");
}
