import { icons, type IconName } from "./icons.ts";

/** Icon draws an icon. The name of the control around it says what it means. */
export const Icon = ({ name, size = 20 }: { readonly name: IconName; readonly size?: number }) => (
  <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d={icons[name]} />
  </svg>
);
