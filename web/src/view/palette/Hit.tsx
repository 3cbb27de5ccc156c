import type { SearchHit } from "@loquat/client";
import { fullTime, shortDate, t } from "../../i18n/index.ts";

/** Hit is a message that a search found: an excerpt with the words that match, and where it is. */
export function Hit({ hit }: { readonly hit: SearchHit }) {
  const { parts, cut_before, cut_after } = hit.snippet;
  const date = new Date(hit.created_at);
  return (
    <span class="hit">
      <span class="hit-head">
        <span class="hit-title" dir="auto">{hit.title || t("session.untitled")}</span>
        <time class="time" dateTime={hit.created_at} title={fullTime().format(date)}>{shortDate().format(date)}</time>
      </span>
      <span class="hit-snippet" dir="auto">
        {cut_before && "… "}
        {parts.map(({ text, hit: marked }, i) => (marked ? <mark key={i}>{text}</mark> : text))}
        {cut_after && " …"}
      </span>
    </span>
  );
}
