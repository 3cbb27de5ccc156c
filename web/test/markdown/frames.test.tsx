import { container, settled } from "./dom.ts";
import { signal } from "@preact/signals";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { Text } from "../../src/view/transcript/Text.tsx";

test("the first words of a reply are shown at once, and later ones once for each frame", async () => {
  let frames: FrameRequestCallback[] = [];
  const before = globalThis.requestAnimationFrame;
  globalThis.requestAnimationFrame = (f) => frames.push(f);
  const frame = (): void => frames.splice(0).forEach((f) => f(performance.now()));
  const into = container();
  const live = signal("");
  const expect = async (text: string): Promise<void> => {
    await settled();
    assert.equal(into.textContent, text);
  };
  render(<Text text="" live={live} />, into);
  live.value = "One"; // no effect of the first render has had its turn
  await expect("One");
  live.value = "One two";
  live.value = "One two three";
  await expect("One");
  frame();
  await expect("One two three");
  live.value = "One two three four";
  await expect("One two three");
  frame();
  await expect("One two three four");
  frame();
  assert.equal(frames.length, 0, "frames are asked for while nothing comes");
  live.value = "";
  await expect("");
  live.value = "Again";
  await expect("");
  frame();
  await expect("Again");
  render(null, into);
  frames = [];
  live.value = "Gone";
  assert.equal(frames.length, 0);
  globalThis.requestAnimationFrame = before;
});
