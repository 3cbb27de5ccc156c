// Draws the icon of the client as PNG files of any size. The shapes are those of icon.svg.
import { deflateSync } from "node:zlib";

const ORANGE = [232, 131, 58];
const GREEN = [79, 122, 74];
const CREAM = [250, 246, 239];

// The shapes have the coordinates of icon.svg, a square of 64 units.
const inFruit = (x, y) => (x - 32) ** 2 + (y - 36) ** 2 <= 21 ** 2;
const inTail = (x, y) => x >= 13 && y >= 36 && y <= 60 && x - 13 <= (60 - y) * 0.8 && y >= 36 + (x - 13) * 0.4;
const inLeaf = (x, y) => (x - 33) ** 2 + (y + 2) ** 2 <= 20 ** 2 && (x - 51) ** 2 + (y - 22) ** 2 <= 19 ** 2;

function colorAt(x, y) {
  if (inLeaf(x, y)) return GREEN;
  return inFruit(x, y) || inTail(x, y) ? ORANGE : null;
}

// pixels returns RGBA rows. Each pixel is the mean of 16 samples, which smooths the edges.
function pixels(size, { background = null, scale = 1 }) {
  const rows = Buffer.alloc(size * (size * 4 + 1));
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      const sum = [0, 0, 0, 0];
      for (let sample = 0; sample < 16; sample++) {
        const x = ((column + ((sample % 4) + 0.5) / 4) / size) * 64;
        const y = ((row + (Math.floor(sample / 4) + 0.5) / 4) / size) * 64;
        const color = colorAt(32 + (x - 32) / scale, 32 + (y - 32) / scale) ?? background;
        if (!color) continue;
        color.forEach((part, i) => (sum[i] += part));
        sum[3]++;
      }
      const at = row * (size * 4 + 1) + 1 + column * 4;
      for (let i = 0; i < 3; i++) rows[at + i] = sum[3] ? Math.round(sum[i] / sum[3]) : 0;
      rows[at + 3] = Math.round((sum[3] / 16) * 255);
    }
  }
  return rows;
}

function checksum(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(checksum(body), body.length + 4);
  return out;
}

/** png returns the icon as the bytes of a PNG file. */
export function png(size, options = {}) {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(size, 0);
  header.writeUInt32BE(size, 4);
  header.set([8, 6, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk("IHDR", header), chunk("IDAT", deflateSync(pixels(size, options), { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

/** files returns the PNG files of the manifest by name. A maskable icon leaves the margin that platforms cut off. */
export function files() {
  return {
    "icon-192.png": png(192),
    "icon-512.png": png(512),
    "icon-maskable-512.png": png(512, { background: CREAM, scale: 0.72 }),
    "apple-touch-icon.png": png(180, { background: CREAM, scale: 0.8 }),
  };
}
