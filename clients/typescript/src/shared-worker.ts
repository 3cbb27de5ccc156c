// The code of the SharedWorker that holds the connection of all tabs.

import { serveTabs } from "./shared.ts"

serveTabs(self as unknown as Parameters<typeof serveTabs>[0])
