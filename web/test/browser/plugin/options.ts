// The configuration of a server with the plugin of this folder.
import { randomUUID } from "node:crypto";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

/** withWorkshop has the plugins that are compiled in, and the one of this folder. */
export const withWorkshop = {
  plugins: ["loquat.providers.reference_generic_compatible", "loquat.features.request_options", "loquat.features.compact_range", `path:${dirname(fileURLToPath(import.meta.url))}`],
};

/** sawing is a script whose first reply saws planks. */
export const sawing = (planks: number, pause: number, then: string): Record<string, unknown> => ({
  id: randomUUID(), // the backend counts the attempts of each id
  attempts: [{ tool_calls: [{ id: "c1", name: "saw", arguments: { planks, pause_ms: pause } }] }, { text: then }],
});
