import type { ComponentChildren, JSX, Ref } from "preact";
import { Icon } from "./Icon.tsx";
import type { IconName } from "./icons.ts";

type Native = Omit<JSX.IntrinsicElements["button"], "label" | "icon" | "children" | "size" | "ref">;

interface ButtonProps extends Native {
  readonly kind?: "plain" | "primary" | "danger" | "quiet";
  readonly icon?: IconName;
  readonly children: ComponentChildren;
  readonly inner?: Ref<HTMLButtonElement>;
}

export const Button = ({ kind = "plain", icon, children, inner, class: more, ...native }: ButtonProps) => (
  <button type="button" ref={inner ?? null} class={`button ${kind} ${more ?? ""}`} {...native}>
    {icon && <Icon name={icon} size={18} />}
    <span>{children}</span>
  </button>
);

interface IconButtonProps extends Native {
  readonly icon: IconName;
  readonly label: string;
  /** Keys that do the same, shown in the tooltip. */
  readonly shortcut?: string | undefined;
  readonly size?: number;
  readonly inner?: Ref<HTMLButtonElement>;
}

export const IconButton = ({ icon, label, shortcut, size, inner, class: more, ...native }: IconButtonProps) => (
  <button type="button" ref={inner ?? null} class={`icon-button ${more ?? ""}`} aria-label={label} data-tip={label} data-keys={shortcut} {...native}>
    <Icon name={icon} {...(size !== undefined && { size })} />
  </button>
);
