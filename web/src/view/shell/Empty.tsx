import { t } from "../../i18n/index.ts";
import { useApp } from "../context.ts";

const prompts = ["empty.prompt1", "empty.prompt2", "empty.prompt3"] as const;

/** Empty is the page of a session that does not exist yet. */
export function Empty() {
  const app = useApp();
  const scripted = app.scripted.value;
  return (
    <div class="empty" data-test="empty">
      <h2>{t("empty.title")}</h2>
      {!app.readOnly.value && (
        <ul class="plain prompts">
          {prompts.map((prompt) => (
            <li key={prompt}>
              <button type="button" class="prompt" data-test="prompt" onClick={() => void app.suggest(t(`${prompt}_text`))}>
                <strong>{t(prompt)}</strong>
                <span>{t(`${prompt}_text`)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
      {scripted && (
        <details class="scripted" data-test="scripted">
          <summary>
            {t("empty.scripted")} <u>{t("empty.scripted_more")}</u>
          </summary>
          <p>{t("empty.scripted_help")}</p>
        </details>
      )}
    </div>
  );
}
