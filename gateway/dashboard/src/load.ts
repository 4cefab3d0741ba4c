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

/** Runs call once, a moment after the last of many reasons. */
export function useSettled (call: () => void, ms: number): () => void {
  const timer = useRef<number>(0)
  const last = useRef(call)
  last.current = call
  useEffect(() => () => clearTimeout(timer.current), [])
  return useCallback(() => {
    clearTimeout(timer.current)
    timer.current = setTimeout(() => last.current(), ms)
  }, [ms])
}
