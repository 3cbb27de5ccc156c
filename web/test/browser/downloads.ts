// The files that a page saves.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "./browser.ts";
import { until } from "./program.ts";

/** saveTo lets a page save files in a folder. Only Chromium's protocol can do this. */
export async function saveTo(page: Page, folder: string): Promise<void> {
  const chrome = await page.driver.createCDPSession();
  await chrome.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder, browserContextId: page.context.id! });
}

/** savedFile returns the text of the file in a folder whose name ends so, as soon as it is complete: until then, its name ends in another way. */
export async function savedFile(folder: string, ending: string): Promise<string> {
  const found = async (): Promise<string | undefined> => (await readdir(folder)).find((name) => name.endsWith(ending));
  await until(`there is a file ${ending}`, found);
  return readFile(join(folder, (await found())!), "utf8");
}
