// The types of the API as the model uses them.
export type { Agent, Attachment, Message, QueuedSend as Queued, SessionSummary as Summary } from "@loquat/client";

export type Metadata = { readonly [key: string]: unknown };

/** Me says what the caller may do. */
export interface Me {
  /** Whether the server asks for a token. */
  readonly requires_token: boolean;
  readonly scope: "full" | "read" | "session" | "user";
  /** With the scope session: the only session that the caller may use. */
  readonly session_id?: string;
  /** With the scope user: whose sessions the caller may use. */
  readonly user?: string;
  readonly name?: string;
  /** Whether a cookie was used, which sign-out ends. */
  readonly browser: boolean;
}
