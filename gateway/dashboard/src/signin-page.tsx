import { useState } from 'preact/hooks'
import { ApiError, get, request } from './api.ts'
import type { Identity } from './types.ts'

/** The key goes to the gateway in a header field, once; what comes back is a cookie that scripts cannot read. */
async function signIn (key: string): Promise<Identity> {
  await request('POST', '/signin', { headers: { authorization: `Bearer ${key}` } })
  try {
    return await get<Identity>('/v1/whoami')
  } catch (fault) {
    await request('POST', '/signout').catch(() => {})
    throw fault instanceof ApiError && fault.status === 401 ? new Error('This key is not known. Check that all of it was copied, and that it was not revoked.') : fault
  }
}

export function SignInPage ({ why, onSignedIn }: { why: string, onSignedIn: (who: Identity) => void }) {
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  const submit = (event: SubmitEvent): void => {
    event.preventDefault()
    const key = String(new FormData(event.currentTarget as HTMLFormElement).get('key')).trim()
    if (!/^[\w\-.~+/=]{1,128}$/.test(key)) {
      setError('That is not a key: one is a single word, such as transom_0123abcd…')
      return
    }
    setBusy(true)
    setError('')
    signIn(key).then(onSignedIn, (fault: Error) => { setError(fault.message); setBusy(false) })
  }
  return (
    <main class="signin">
      <h1>Transom</h1>
      {why !== '' && <p role="status">{why}</p>}
      <form onSubmit={submit}>
        <label for="key">API key</label>
        <input id="key" name="key" type="password" autocomplete="current-password" required autofocus spellcheck={false}
          aria-describedby="key-help" aria-invalid={error !== ''} />
        {error !== '' && <p class="error" role="alert">{error}</p>}
        <button class="primary" disabled={busy} aria-busy={busy}>Sign in</button>
      </form>
      <p id="key-help" class="help">An administrator makes one on the node: <code>transom key create OWNER</code></p>
    </main>
  )
}
