import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { EnvironmentContext } from "./environment.ts";
import { format } from "./texts.ts";

export const maxDiagram = 20_000;
const maxHeight = 2_000;

/**
 * Diagram draws Mermaid in a frame that has no access to the page, to its storage or to the network. The source goes
 * in as a message; the size or an error comes back.
 */
export function Diagram({ source }: { source: string }) {
  const { texts, frameUrl } = useContext(EnvironmentContext);
  const frame = useRef<HTMLIFrameElement>(null);
  const [height, setHeight] = useState(160);
  const [error, setError] = useState("");
  useEffect(() => {
    const receive = (event: MessageEvent) => {
      const window_ = frame.current?.contentWindow;
      if (!window_ || event.source !== window_) return;
      const message = messageOf(event.data);
      // A sandboxed frame has no origin that could be named, so the message is for any. It holds only the source.
      if (message.type === "ready") window_.postMessage({ type: "draw", source, dark: isDark(frame.current!) }, "*");
      if (message.type === "size") setHeight(Math.min(maxHeight, Math.max(40, Math.ceil(message.height))));
      if (message.type === "error") setError(message.reason);
    };
    addEventListener("message", receive);
    return () => removeEventListener("message", receive);
  }, [source]);
  if (error) return <p class="md-warning">{format(texts.diagramFailed, { reason: error })}</p>;
  return (
    <iframe
      ref={frame}
      class="md-diagram"
      title={texts.diagram}
      sandbox="allow-scripts"
      referrerpolicy="no-referrer"
      src={frameUrl}
      height={height}
    />
  );
}

type Message = { type: "ready" } | { type: "size"; height: number } | { type: "error"; reason: string } | { type: "unknown" };

/** messageOf checks what the frame sent. The frame runs on hostile input, so nothing of it is trusted. */
function messageOf(data: unknown): Message {
  if (typeof data !== "object" || data === null) return { type: "unknown" };
  const { type, height, reason } = data as Record<string, unknown>;
  if (type === "ready") return { type };
  if (type === "size" && typeof height === "number" && Number.isFinite(height)) return { type, height };
  if (type === "error" && typeof reason === "string") return { type, reason: reason.slice(0, 300) };
  return { type: "unknown" };
}

function isDark(element: HTMLElement): boolean {
  return getComputedStyle(element).colorScheme.startsWith("dark");
}
