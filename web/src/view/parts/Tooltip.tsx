// One tooltip for all elements with data-tip. It repeats the name of a control for those
// who see only its icon, so assistive technology does not need it.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

interface Tip {
  readonly at: DOMRect;
  readonly text: string;
  readonly keys: string;
}

const shown = signal<Tip | null>(null);
const delay = 400;

export function Tooltip() {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(listen, []);
  const tip = shown.value;
  useLayoutEffect(() => {
    const box = ref.current;
    if (!box || !tip) return;
    const left = tip.at.left + tip.at.width / 2 - box.offsetWidth / 2;
    const below = tip.at.bottom + 6 + box.offsetHeight < innerHeight;
    box.style.setProperty("left", `${Math.max(6, Math.min(left, innerWidth - box.offsetWidth - 6))}px`);
    box.style.setProperty("top", `${below ? tip.at.bottom + 6 : tip.at.top - box.offsetHeight - 6}px`);
  }, [tip]);
  return (
    tip && (
      <div ref={ref} class="tooltip" aria-hidden="true">
        {tip.text}
        {tip.keys && <kbd>{tip.keys}</kbd>}
      </div>
    )
  );
}

/** listen shows the tooltip of the element under the pointer, or with a visible focus. */
function listen(): () => void {
  let timer = 0;
  const hide = (): void => {
    clearTimeout(timer);
    shown.value = null;
  };
  const show = (target: EventTarget | null, after: number): void => {
    const element = target instanceof Element ? target.closest<HTMLElement>("[data-tip]") : null;
    hide();
    if (!element) return;
    timer = window.setTimeout(() => {
      if (element.isConnected) shown.value = { at: element.getBoundingClientRect(), text: element.dataset.tip ?? "", keys: element.dataset.keys ?? "" };
    }, after);
  };
  const over = (e: PointerEvent): void => {
    if (e.pointerType === "mouse") show(e.target, delay);
  };
  const focus = (e: FocusEvent): void => {
    if (e.target instanceof Element && e.target.matches(":focus-visible")) show(e.target, 0);
  };
  const events = { pointerover: over, focusin: focus, focusout: hide, pointerdown: hide, keydown: hide, scroll: hide } as const;
  for (const [name, run] of Object.entries(events)) addEventListener(name, run as EventListener, true);
  return () => {
    for (const [name, run] of Object.entries(events)) removeEventListener(name, run as EventListener, true);
  };
}
