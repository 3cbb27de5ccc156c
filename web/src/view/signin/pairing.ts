/** pairingCode returns the code in the hash of a pairing link, or "". */
export const pairingCode = (hash: string): string => /^#pair=([A-Za-z0-9-]{1,64})$/.exec(hash)?.[1] ?? "";
