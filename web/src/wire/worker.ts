// The code of the SharedWorker that holds the one connection of all tabs.
import "@loquat/client/shared-worker";
