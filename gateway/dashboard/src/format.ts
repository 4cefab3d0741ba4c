// Figures for people.
export function bytes (n: number | undefined): string {
  if (n === undefined) return '–'
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let i = 0
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i] ?? ''}`
}

export const kib = (n: number | undefined): string => bytes(n === undefined ? undefined : n * 1024)
export const percent = (n: number | undefined): string => n === undefined ? '–' : `${n < 10 ? n.toFixed(1) : Math.round(n)} %`

/** "3 min", "2 h 5 min", "4 d". */
export function duration (ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000))
  if (s < 60) return `${s} s`
  const min = Math.floor(s / 60)
  if (min < 60) return `${min} min`
  const h = Math.floor(min / 60)
  if (h < 24) return min % 60 > 0 && h < 6 ? `${h} h ${min % 60} min` : `${h} h`
  return `${Math.floor(h / 24)} d`
}

export const age = (at: string | undefined): string => at === undefined ? '–' : duration(Date.now() - Date.parse(at))
export const until = (at: string | undefined): string => at === undefined ? '–' : duration(Date.parse(at) - Date.now())
export const clock = (at: string): string => new Date(at).toLocaleTimeString()
export const moment = (at: string): string => new Date(at).toLocaleString()
