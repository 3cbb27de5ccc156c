// The one menu that may be open. It is a dialog in the top layer, so it works above other
// dialogs and inside of scrolling lists.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { outside } from "./Dialog.tsx";
import { Icon } from "./Icon.tsx";
import type { IconName } from "./icons.ts";

export interface MenuItem {
  readonly label: string;
  readonly icon?: IconName;
  readonly shortcut?: string | undefined;
  readonly kind?: "danger" | undefined;
  readonly checked?: boolean;
  readonly disabled?: boolean;
  readonly test?: string;
  /** An address that the item opens or downloads, instead of running something. */
  readonly href?: string;
  readonly download?: boolean;
  readonly run?: () => void;
}

/** A null separates items. A false is left out. */
export type MenuItems = readonly (MenuItem | null | false)[];

interface Open {
  readonly anchor: HTMLElement;
  readonly name: string;
  readonly items: () => MenuItems;
}

const open = signal<Open | null>(null);

/**
 * openMenu shows a menu below an element, which gets the focus back. The menu has other items as soon as a
 * signal that items reads has another value: what is still being loaded is not missing until the menu is opened again.
 */
export function openMenu(anchor: HTMLElement, name: string, items: () => MenuItems): void {
  open.value = { anchor, name, items };
}

export function MenuHost() {
  const menu = open.value;
  return menu && <MenuBox key={menu.name} {...menu} />;
}

function MenuBox({ anchor, name, items }: Open) {
  const ref = useRef<HTMLDialogElement>(null);
  const all = items();
  const close = (): void => {
    open.value = null;
    if (anchor.isConnected) anchor.focus();
  };
  useEffect(() => {
    const box = ref.current;
    if (!box) return;
    anchor.setAttribute("aria-expanded", "true");
    box.showModal();
    entries(box)[0]?.focus();
    return () => anchor.removeAttribute("aria-expanded");
  }, []);
  useEffect(() => {
    const box = ref.current!;
    if (!box.contains(document.activeElement)) entries(box)[0]?.focus(); // the entry that had the focus has gone
    place(box, anchor);
  });
  return (
    <dialog
      ref={ref}
      class="menu"
      data-test="menu"
      aria-label={name}
      onCancel={(e) => {
        e.preventDefault();
        close();
      }}
      onPointerDown={(e) => outside(e, ref.current) && close()}
      onKeyDown={(e) => ref.current && moveBy(e, ref.current, close)}
    >
      <div role="menu" aria-label={name}>
        {all.map((item, i) => (item ? <Entry key={keyOf(all, item)} item={item} close={close} /> : item === null && <hr key={i} role="separator" />))}
      </div>
    </dialog>
  );
}

/** keyOf is the same for an item when others come or go. Several may have the same test. */
const keyOf = (all: MenuItems, item: MenuItem): string => `${item.test} ${all.filter((other) => other && other.test === item.test).indexOf(item)}`;

function Entry({ item, close }: { readonly item: MenuItem; readonly close: () => void }) {
  const shared = { class: `menu-item ${item.kind ?? ""}`, tabIndex: -1, "data-test": item.test } as const;
  const content = (
    <>
      <span class="menu-icon">{item.checked ? <Icon name="check" size={18} /> : item.icon && <Icon name={item.icon} size={18} />}</span>
      <span class="menu-label">{item.label}</span>
      {item.shortcut && <kbd>{item.shortcut}</kbd>}
    </>
  );
  const role = item.checked === undefined ? ("menuitem" as const) : ("menuitemradio" as const);
  if (item.href) return <a {...shared} role="menuitem" href={item.href} download={item.download} onClick={close}>{content}</a>;
  return (
    <button
      type="button"
      {...shared}
      role={role}
      aria-disabled={item.disabled}
      {...(item.checked !== undefined && { "aria-checked": item.checked })}
      onClick={() => {
        if (item.disabled) return;
        close();
        item.run?.();
      }}
    >
      {content}
    </button>
  );
}

const entries = (box: HTMLElement): HTMLElement[] => [...box.querySelectorAll<HTMLElement>(".menu-item")];

/** moveBy moves the focus with the keys of a menu: arrows, Home, End, and the first letter of an item. */
function moveBy(e: KeyboardEvent, box: HTMLElement, close: () => void): void {
  const all = entries(box);
  const at = all.indexOf(document.activeElement as HTMLElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
  if (to !== undefined) {
    e.preventDefault();
    all[(to + all.length) % all.length]?.focus();
  } else if (e.key === "Tab") {
    e.preventDefault();
    close();
  } else if (e.key.length === 1 && !e.ctrlKey && !e.metaKey) {
    const rest = [...all.slice(at + 1), ...all.slice(0, at + 1)];
    rest.find((item) => item.textContent?.trim().toLowerCase().startsWith(e.key.toLowerCase()))?.focus();
  }
}

/** place puts the box below its anchor, or above it, always inside of the window. */
function place(box: HTMLElement, anchor: HTMLElement): void {
  const at = anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = box;
  const edge = 8;
  const below = at.bottom + 4 + height <= innerHeight - edge;
  const left = at.left + width <= innerWidth - edge ? at.left : at.right - width;
  box.style.setProperty("left", `${Math.max(edge, Math.min(left, innerWidth - width - edge))}px`);
  box.style.setProperty("top", `${Math.max(edge, below ? at.bottom + 4 : at.top - height - 4)}px`);
}
