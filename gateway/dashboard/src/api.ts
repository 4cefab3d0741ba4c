// Requests to the API, which answers here as on api.<domain>. The browser adds the cookie.
export class ApiError extends Error {
  constructor (readonly status: number, readonly code: string, message: string) { super(message) }
}

/** Called when the sign-in is not valid (any more). */
let onSignedOut = (): void => {}
export function whenSignedOut (call: () => void): void { onSignedOut = call }

async function toError (response: Response): Promise<ApiError> {
  const body = await response.json().catch(() => ({})) as { code?: string, message?: string }
  return new ApiError(response.status, body.code ?? 'error', body.message ?? `The answer was ${response.status}.`)
}

/** The answer as it is; faults are thrown as ApiError, status 0 when nobody answered. */
export async function request (method: string, path: string, options: RequestInit = {}, tries = 3): Promise<Response> {
  let response: Response
  try {
    response = await fetch(path, { method, cache: 'no-store', redirect: 'error', ...options })
  } catch (fault) {
    if (options.signal?.aborted === true) throw fault
    throw new ApiError(0, 'unreachable', 'The gateway does not answer. Is this machine online, and the gateway running?')
  }
  if (response.ok) return response
  if (response.status === 429 && tries > 0) { // too often for this key
    const seconds = Math.min(10, Math.max(1, Number(response.headers.get('retry-after') ?? 1)))
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
    return await request(method, path, options, tries - 1)
  }
  if (response.status === 401 && path.startsWith('/v1/')) onSignedOut()
  throw await toError(response)
}

export async function get<T> (path: string, signal?: AbortSignal): Promise<T> {
  return await (await request('GET', path, { signal })).json() as T
}

export async function send<T = unknown> (method: string, path: string, body?: unknown): Promise<T> {
  const response = await request(method, path, body === undefined
    ? {}
    : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } })
  return (response.status === 204 ? undefined : await response.json()) as T
}

export const sessionPath = (session: string): string => `/v1/sessions/${encodeURIComponent(session)}`
export const sandboxPath = (session: string, name: string): string => `${sessionPath(session)}/sandboxes/${encodeURIComponent(name)}`
/** Each segment escaped, slashes kept. */
export const filePath = (path: string): string => path.split('/').map(encodeURIComponent).join('/')
/** The API takes a plus sign in a query for what it is. */
export const queryText = (query: URLSearchParams): string => query.toString().replaceAll('+', '%20')
