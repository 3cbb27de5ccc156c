// Addresses of code that the page starts. With Trusted Types, browsers take only what the
// policy below has made.

interface Policy {
  createScriptURL(url: string): unknown;
}

interface Factory {
  createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): Policy;
}

/** own returns the address of one of the page's own files, and throws for any other. */
function own(url: string): string {
  if (!/^\/(sw\.js|assets\/worker-[A-Za-z0-9]+\.js)$/.test(url)) throw new TypeError(`${url} is not code of this page`);
  return url;
}

const policy = (globalThis as { trustedTypes?: Factory }).trustedTypes?.createPolicy("loquat", { createScriptURL: own });

/** scriptURL returns the address of one of the page's own files, in the form that browsers require. */
export const scriptURL = (url: string): string => (policy ? (policy.createScriptURL(url) as string) : own(url));
