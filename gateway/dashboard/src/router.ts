// Where we are: the address bar, by the History API.
import { useEffect, useState } from 'preact/hooks'

export interface Place { path: string[], query: URLSearchParams }

function here (): Place {
  return { path: location.pathname.split('/').filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(location.search) }
}

const watchers = new Set<(place: Place) => void>()
const tell = (): void => { const place = here(); watchers.forEach((watch) => watch(place)) }
addEventListener('popstate', tell)

export function go (to: string, replace = false): void {
  if (replace) history.replaceState(null, '', to)
  else { history.pushState(null, '', to); scrollTo(0, 0) }
  tell()
}

/** A click on a link of ours stays in the page, unless a new tab is wanted. */
export function followLinks (event: MouseEvent): void {
  const link = (event.target as Element).closest('a')
  if (link === null || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
  if (link.origin !== location.origin || link.target !== '' || link.hasAttribute('download')) return
  event.preventDefault()
  go(link.pathname + link.search)
}

export function usePlace (): Place {
  const [place, set] = useState(here)
  useEffect(() => { watchers.add(set); return () => { watchers.delete(set) } }, [])
  return place
}

export const sandboxLink = (session: string, name: string, tab = ''): string =>
  `/s/${encodeURIComponent(session)}/${encodeURIComponent(name)}${tab === '' ? '' : '/' + tab}`
