import { t } from "../../i18n/index.ts";
import { useApp } from "../context.ts";
import { Icon } from "../parts/Icon.tsx";
import { choosing } from "./layers.tsx";

/** ModelPicker shows the model that answers, and opens the choice of another one. */
export function ModelPicker() {
  const app = useApp();
  const picker = app.settings.picker.value;
  const agents = app.agents.value.length > 1;
  if (!picker && !agents) return null;
  const model = picker?.value || (picker ? t("model.unknown") : "");
  const shown = [agents ? app.settings.agent.value : "", model].filter(Boolean).join(" · ");
  return (
    <button type="button" class="model-picker" aria-haspopup="dialog" aria-label={`${picker?.label || t("model.choose")}: ${shown}`} data-tip={t("model.choose")} data-test="model-picker" onClick={() => (choosing.value = true)}>
      <span dir="auto">{shown}</span>
      <Icon name="chevron-down" size={16} />
    </button>
  );
}
