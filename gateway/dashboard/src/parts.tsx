// Small things that every page is made of.
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import type { State } from './types.ts'

export const Badge = ({ state }: { state: State }) => <span class={`badge ${state}`}>{state}</span>

/** An empty list, and what to do about it. */
export const Empty = ({ title, children }: { title: string, children?: ComponentChildren }) =>
  <div class="empty"><p><strong>{title}</strong></p>{children}</div>

export const Loading = () => <p class="empty" role="status">Loading …</p>

export const Fault = ({ error, retry }: { error: Error, retry?: () => void }) =>
  <div class="fault" role="alert"><p>{error.message}</p>{retry !== undefined && <button onClick={retry}>Try again</button>}</div>

/** A button that runs something: busy meanwhile, its fault beside it. */
export function Action ({ children, run, danger, disabled }: { children: ComponentChildren, run: () => Promise<unknown>, danger?: boolean, disabled?: boolean }) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<Error>()
  const click = (): void => {
    setBusy(true)
    setError(undefined)
    run().catch(setError).finally(() => setBusy(false))
  }
  return (
    <>
      <button class={danger === true ? 'danger' : ''} disabled={busy || disabled} aria-busy={busy} onClick={click}>{children}</button>
      {error !== undefined && <span class="error" role="alert">{error.message}</span>}
    </>
  )
}

/** A button that asks before it runs. */
export function Confirmed ({ label, title, children, run, disabled }: { label: string, title: string, children: ComponentChildren, run: () => Promise<unknown>, disabled?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useId()
  const [open, setOpen] = useState(false)
  useEffect(() => { if (open) dialog.current?.showModal() }, [open])
  return (
    <>
      <button class="danger" disabled={disabled} onClick={() => setOpen(true)}>{label}</button>
      {open && (
        <dialog ref={dialog} aria-labelledby={heading} onClose={() => setOpen(false)}>
          <h2 id={heading}>{title}</h2>
          {children}
          <div class="row">
            <button autofocus onClick={() => dialog.current?.close()}>Cancel</button>
            <Action danger run={async () => { await run(); dialog.current?.close() }}>{label}</Action>
          </div>
        </dialog>
      )}
    </>
  )
}

export const Facts = ({ of }: { of: [string, ComponentChildren][] }) =>
  <dl class="facts">{of.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>

/** Renders again every so often, for ages. */
export function useTick (ms: number): void {
  const [, set] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => set((n) => n + 1), ms)
    return () => clearInterval(timer)
  }, [ms])
}
