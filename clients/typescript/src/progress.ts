// Uploads with progress.

import type { Fetch } from "./http.ts"
import type { Progress } from "./sessions.ts"

/** Returns a fetch that reports what it has sent. It is for short answers. */
export const fetchWithProgress = (onProgress: Progress): Fetch => (url, { method = "GET", headers, body, credentials, signal }, flows) => new Promise((resolve, reject) => {
  if (signal?.aborted) return reject(signal.reason)
  const xhr = new XMLHttpRequest()
  const abort = () => xhr.abort()
  xhr.open(method, url)
  new Headers(headers).forEach((value, name) => xhr.setRequestHeader(name, value))
  xhr.withCredentials = credentials === "include"
  xhr.upload.onprogress = (e) => {
    flows?.()
    onProgress(e.loaded, e.lengthComputable ? e.total : 0)
  }
  xhr.onload = () => {
    const given = xhr.getAllResponseHeaders().split("\r\n").filter(Boolean).map((line) => line.split(/: ?(.*)/, 2) as [string, string])
    resolve(new Response(xhr.responseText || null, { status: xhr.status, headers: given }))
  }
  xhr.onerror = () => reject(new TypeError("the upload was interrupted"))
  xhr.onabort = () => reject(signal?.reason)
  xhr.onloadend = () => signal?.removeEventListener("abort", abort)
  signal?.addEventListener("abort", abort)
  xhr.send(body as XMLHttpRequestBodyInit)
})
