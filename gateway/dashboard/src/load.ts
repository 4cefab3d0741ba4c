// Something from the API, with its states: loading, there, failed.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { get } from './api.ts'

export interface Loaded<T> { value?: T, error?: Error, loading: boolean, reload: () => void, set: (value: T) => void }

/** Loads again when path changes or reload() is called; then the old value stays until the new one is there. */
export function useLoad<T> (path: string | undefined): Loaded<T> {
  const [state, setState] = useState<{ value?: T, error?: Error, path?: string }>({})
  const [round, setRound] = useState(0)
  const reload = useCallback(() => setRound((n) => n + 1), [])
  useEffect(() => {
    if (path === undefined) return
    const ended = new AbortController()
    get<T>(path, ended.signal).then((value) => { if (!ended.signal.aborted) setState({ value, path }) },
      (error: Error) => { if (!ended.signal.aborted) setState((old) => ({ value: old.path === path ? old.value : undefined, error, path })) })
    return () => ended.abort()
  }, [path, round])
  return { value: state.value, error: state.error, loading: state.path !== path && state.error === undefined, reload, set: (value) => setState({ value, path }) }
}

/** Runs call a moment after it was asked for; more who ask meanwhile add nothing, or, with last,
 * put it off: for what is being typed. */
export function useSettled (call: () => void, ms: number, last = false): () => void {
  const timer = useRef(0)
  const latest = useRef(call)
  latest.current = call
  useEffect(() => () => clearTimeout(timer.current), [])
  return useCallback(() => {
    if (timer.current !== 0 && !last) return
    clearTimeout(timer.current)
    timer.current = setTimeout(() => { timer.current = 0; latest.current() }, ms)
  }, [ms, last])
}
