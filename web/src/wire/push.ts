// The subscription of this browser to the notifications that the server pushes. It is loaded only for
// users who want notifications.
import type { Loquat } from "@loquat/client";

/** Texts are what the service worker shows, in the language of the page. */
export interface Texts {
  readonly completed: string;
  readonly failed: string;
}

/** subscribe makes the server push notifications to this browser. It returns the id of the subscription, "" if the server pushes none. */
export async function subscribe(sdk: Loquat, texts: Texts): Promise<string> {
  const { public_key } = await sdk.push.get();
  if (!public_key) {
    await unsubscribe();
    return "";
  }
  const { pushManager } = await navigator.serviceWorker.ready;
  let subscription = await pushManager.getSubscription();
  if (subscription && keyOf(subscription) !== public_key) { // the server has other data than before
    await subscription.unsubscribe();
    subscription = null;
  }
  subscription ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: public_key });
  const { endpoint, keys } = subscription.toJSON();
  const { subscription_id } = await sdk.push.subscribe({ endpoint: endpoint ?? "", keys: { p256dh: keys?.["p256dh"] ?? "", auth: keys?.["auth"] ?? "" } });
  const cache = await caches.open("loquat-notifications");
  await cache.put("/notification-texts", new Response(JSON.stringify(texts)));
  return subscription_id;
}

/** unsubscribe ends the subscription of this browser. With an id, it also removes the subscription from the server. */
export async function unsubscribe(sdk?: Loquat, id = ""): Promise<void> {
  if (sdk && id) await sdk.push.unsubscribe(id).catch(() => {}); // the server hears from the push service that it has ended
  const { pushManager } = await navigator.serviceWorker.ready;
  await (await pushManager.getSubscription())?.unsubscribe();
}

const keyOf = ({ options }: PushSubscription): string => (options.applicationServerKey ? base64url(options.applicationServerKey) : "");

const base64url = (bytes: ArrayBuffer): string => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
