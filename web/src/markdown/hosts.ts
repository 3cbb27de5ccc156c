/** Writes names of hosts in ASCII with the browser's own tables. The build puts this module in place of the package "punycode.js" that markdown-it imports. */
export default {
  toASCII: (host: string): string => (/^[\0-\x7f]*$/.test(host) ? host : new URL(`http://${host}`).hostname),
  /** The parser's own texts of links are not used. */
  toUnicode: (host: string): string => host,
};
