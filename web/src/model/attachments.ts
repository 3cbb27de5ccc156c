// What can be attached to a message: images from this device, and the addresses of images elsewhere.
import type { OutboxEntry } from "@loquat/client";
import type { Attachment } from "./types.ts";

/** Piece is one attachment of a draft: an image in the browser, or one that the server or another one has. */
export interface Piece {
  readonly key: string;
  readonly name: string;
  readonly image?: Blob;
  readonly attachment?: Attachment;
}

/** A file of the user; a File is one. */
export type Chosen = Blob & { readonly name?: string };

/** Why a file is not attached. */
export type Refusal = "kind" | "size" | "count" | "empty" | "unreadable";

/** The page refuses larger images. The server may have a lower limit; then it refuses the send and says why. */
export const maxImageBytes = 64 << 20;
export const maxPieces = 20;
/** What a file dialog offers. */
export const accepted = "image/png,image/jpeg,image/gif,image/webp";

const text = (bytes: Uint8Array, from: number, to: number): string => String.fromCharCode(...bytes.subarray(from, to));

/** imageType returns the type of an image by its first bytes; "" if it is not one that the server takes. */
export function imageType(bytes: Uint8Array): string {
  if (text(bytes, 0, 8) === "\x89PNG\r\n\x1a\n") return "image/png";
  if (bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return "image/jpeg";
  if (/^GIF8[79]a$/.test(text(bytes, 0, 6))) return "image/gif";
  return text(bytes, 0, 4) === "RIFF" && text(bytes, 8, 12) === "WEBP" ? "image/webp" : "";
}

/**
 * readImage checks a file and copies it, so that it can be sent also if the file changes or goes
 * away meanwhile. The copy has the type of its bytes, whatever the name of the file says.
 */
export async function readImage(file: Chosen): Promise<Blob | Refusal> {
  if (file.size > maxImageBytes) return "size";
  try {
    const type = imageType(new Uint8Array(await file.slice(0, 16).arrayBuffer()));
    if (!type) return file.size === 0 ? "empty" : "kind";
    return new Blob([await file.arrayBuffer()], { type });
  } catch {
    return "unreadable"; // a folder, or a file that is gone
  }
}

/** imageName returns the name of a file as the server takes it: at most 255 printable characters. */
export const imageName = (file: Chosen): string => [...(file.name ?? "").replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "")].slice(0, 255).join("");

/** addressOf returns a text as the address of an image on the web, or "" if it is none. */
export function addressOf(text: string): string {
  const trimmed = text.trim();
  if (!/^https?:\/\/[^\s]+$/i.test(trimmed) || trimmed.length > 2048 || !URL.canParse(trimmed)) return "";
  const url = new URL(trimmed);
  return url.hostname && !url.username && !url.password ? url.href : "";
}

/** looksLikeImage reports whether the name at the end of an address is that of an image. */
export const looksLikeImage = (address: string): boolean => address !== "" && /\.(png|jpe?g|gif|webp)$/i.test(new URL(address).pathname);

/** placeOf returns where the image of an attachment is: one of the three is there. */
export const placeOf = (attachment: Attachment | undefined): { readonly url?: string; readonly data_url?: string; readonly asset_id?: string } => attachment ?? {};

/** piecesOf returns the attachments of a send on its way. */
export function piecesOf({ id, send, files = [] }: Pick<OutboxEntry, "id" | "send" | "files">): Piece[] {
  const referred = (send.attachments ?? []).map((attachment, i) => ({ key: `${id}-${i}`, name: placeOf(attachment).url ?? "", attachment }));
  return [...referred, ...files.map(({ name = "", image }, i) => ({ key: `${id}-file-${i}`, name, image }))];
}
