// Named characters whose table is loaded on demand.
import { suite } from "./suite.ts";

suite("named characters", (check) => {
  check("a character with a rare name is shown once the table of names is loaded", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: [{ role: "user", content: "Name it" }, { role: "assistant", content: "&auml; &HilbertSpace; &nosuch; [link](https://example.com/&ngE;)" }] })}`);
    await page.shows("ä ℋ &nosuch; link", "transcript");
  });
});
