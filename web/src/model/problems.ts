import { has, t } from "../i18n/index.ts";

/** explain returns a problem as a text for the user: what its code means, and the server's detail. */
export function explain({ code, message }: { readonly code: string; readonly message: string }): string {
  const key = `problem.${code}`;
  if (!has(key)) return message || code;
  return message && code !== "connection" ? `${t(key)} ${message}` : t(key);
}
