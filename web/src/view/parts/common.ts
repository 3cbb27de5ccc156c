// What the parts of the page that are loaded later share with the rest of it. Each of them imports this, so that the
// build makes one file of it, and not a small file for each set of parts that happens to use the same module. The
// connection is among it for the same reason: the worker shares the SDK with all of them.
import "@loquat/client/shared";
import "../../model/attachments.ts";
import "../../model/elements.ts";
import "../../model/problems.ts";
import "../../model/wire.ts";
import "../settings/layers.tsx";
import "./Dialog.tsx";
import "./Field.tsx";
import "./keys.ts";
import "./Later.tsx";
import "./Spinner.tsx";
