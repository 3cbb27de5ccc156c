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

/**
 * savedFile returns the text of the file in a folder whose name ends so, as soon as it is complete. Until then the browser writes to
 * another name, and may keep an empty file under this one.
 */
export async function savedFile(folder: string, ending: string): Promise<string> {
  let text = "";
  await until(`there is a file ${ending}`, async () => {
    const name = (await readdir(folder)).find((one) => one.endsWith(ending));
    text = name ? await readFile(join(folder, name), "utf8") : "";
    return text !== "";
  });
  return text;
}
