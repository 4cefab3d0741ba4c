// xterm.js in front of a window, by the WebSocket of the API: bytes are the terminal's, text is
// JSON (see vmm/api_attach.c). Loaded when a terminal is opened.
import { FitAddon } from '@xterm/addon-fit'
import { Terminal } from '@xterm/xterm'

export type TerminalState = { kind: 'connecting' } | { kind: 'open', gap: boolean } | { kind: 'over', why: string }

const codes: Record<number, string> = { 1000: 'The window was closed.', 1001: 'The sandbox or the manager stopped.', 1006: 'The connection was lost, or could not be made.' }

export function openTerminal (box: HTMLElement, path: string, tell: (state: TerminalState) => void): () => void {
  const term = new Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000, screenReaderMode: true, theme: { background: '#101418' } })
  const fit = new FitAddon()
  term.loadAddon(fit)
  term.open(box)
  fit.fit()
  const socket = new WebSocket(`${path}?rows=${term.rows}&cols=${term.cols}`, ['transom.v1'])
  let gap = false
  socket.binaryType = 'arraybuffer'
  socket.onmessage = ({ data }) => {
    if (typeof data !== 'string') {
      term.write(new Uint8Array(data as ArrayBuffer))
      return
    }
    const { type } = JSON.parse(data) as { type: string }
    if (type === 'hello') term.focus()
    gap ||= type === 'gap'
    if (type === 'hello' || type === 'gap') tell({ kind: 'open', gap })
  }
  socket.onclose = ({ code, reason }) => tell({ kind: 'over', why: reason !== '' ? reason : codes[code] ?? `The connection ended (${code}).` })
  const say = (data: string | Uint8Array<ArrayBuffer>): void => { if (socket.readyState === WebSocket.OPEN) socket.send(data) }
  term.onData((text) => say(new TextEncoder().encode(text)))
  term.onBinary((text) => say(Uint8Array.from(text, (c) => c.charCodeAt(0))))
  term.onResize(({ rows, cols }) => say(JSON.stringify({ type: 'resize', rows, cols })))
  // Tab belongs to the shell, so there is another way out of the terminal for who has no mouse.
  term.attachCustomKeyEventHandler((event) => {
    if (event.key !== 'F6' || !event.ctrlKey || !event.shiftKey) return true
    if (event.type === 'keydown') document.querySelector<HTMLElement>('.tabs [aria-current]')?.focus()
    return false
  })
  const resize = new ResizeObserver(() => fit.fit())
  resize.observe(box)
  return () => {
    resize.disconnect()
    socket.onclose = null
    socket.close()
    term.dispose()
  }
}
