/** The most milliseconds that work waits for the page to be idle. */
const timeout = 100;

/** whenIdle runs what nobody waits for once the page has nothing else to do, but soon. */
export const whenIdle = (run: () => void): void => void (typeof requestIdleCallback === "function" ? requestIdleCallback(run, { timeout }) : setTimeout(run)); // Safari has no idle times
