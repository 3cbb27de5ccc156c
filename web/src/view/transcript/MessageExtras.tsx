import type { App } from "../../model/app.ts";
import type { Message } from "../../model/types.ts";

interface ExtrasProps {
  readonly app: App;
  readonly message: Message;
  readonly index: number;
}

/** MessageExtras shows the footers of plugins with a message. The actions of plugins are in the message's menu. */
export function MessageExtras({ app, message, index }: ExtrasProps) {
  const footers = app.settings.footers({ message, index });
  return (
    <>
      {footers.map(({ key, text }) => (
        <span key={key} class="plugin-footer" dir="auto" data-test="message-footer">{text}</span>
      ))}
    </>
  );
}
