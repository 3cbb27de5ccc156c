/**
 * Examples of the specifications that are shown in another way, by their numbers, each with the reason. A test fails if
 * another example fails, and if one of these begins to pass.
 */
const bareAddress = "a bare address becomes a link, as in GitHub's extension; the base specification leaves it as text";
const xmpp = "only http, https and mailto addresses become links";
const tilde = "two tildes strike, one does not: it also means \"about\", as in ~5";
const comment = "comments follow the wider definition of CommonMark 0.31; either way they are shown as text";

export const commonMark: Readonly<Record<number, string>> = {
  602: bareAddress,
  608: bareAddress,
  611: bareAddress,
  612: bareAddress,
};

export const gfm: Readonly<Record<number, string>> = {
  491: tilde,
  493: tilde,
  611: bareAddress,
  617: bareAddress,
  620: bareAddress,
  621: bareAddress,
  626: "linkify-it ends an address at a parenthesis that does not match",
  627: "linkify-it keeps what looks like an entity at the end of an address",
  631: "linkify-it accepts a plus sign in the host of a mail address",
  633: xmpp,
  634: xmpp,
  635: xmpp,
  649: comment,
  650: comment,
  657: "no tag is filtered, because all raw HTML is shown as text",
};
