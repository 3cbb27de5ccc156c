// The addresses of the page.

export type Route = { readonly at: "new" } | { readonly at: "session"; readonly id: string; readonly message?: number } | { readonly at: "archived" };

const idPattern = /^[A-Za-z0-9_-]{1,64}$/;

/** parseRoute returns the route of an address. An address that the page does not know is a new session. */
export function parseRoute(path: string, hash = ""): Route {
  if (path === "/archived") return { at: "archived" };
  const id = path.startsWith("/s/") ? path.slice(3) : hash.startsWith("#s=") ? hash.slice(3) : "";
  if (!idPattern.test(id)) return { at: "new" };
  const message = /^#m(\d{1,9})$/.exec(hash)?.[1];
  return message === undefined ? { at: "session", id } : { at: "session", id, message: Number(message) };
}

export function formatRoute(route: Route): string {
  if (route.at === "archived") return "/archived";
  if (route.at === "new") return "/";
  return `/s/${route.id}${route.message === undefined ? "" : `#m${route.message}`}`;
}

export const sessionOf = (route: Route): string | null => (route.at === "session" ? route.id : null);
