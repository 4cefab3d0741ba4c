// What the API answers, as far as the dashboard looks at it. See /v1/openapi.json.
export type State = 'asleep' | 'starting' | 'running' | 'stopping' | 'failed'
export const states: State[] = ['running', 'starting', 'stopping', 'asleep', 'failed']

export interface Stats {
  at: string
  cpu_percent?: number
  load1?: number
  processes?: number
  mem_total_kb?: number
  mem_available_kb?: number
  disk_total_kb?: number
  disk_used_kb?: number
  host_cpu_ms?: number
  host_memory_kb?: number
  net_received_bytes?: number
  net_sent_bytes?: number
}

export interface Sandbox {
  name: string
  label: string
  state: State
  reason: string
  instance: number
  url: string
  host: string
  access: 'public' | 'private'
  vcpus: number
  memory_mb: number
  created_at: string
  started_at?: string
  idle?: { deadline_at: string, why: string }
  stats: Stats | null
}

export interface SessionHead { id: string, name: string, owner: string, persist: boolean }
export interface ListedSandbox extends Sandbox { session: SessionHead }
export interface Session extends SessionHead { created_at: string, idle_timeout_s: number, secrets: string[], sandboxes: Sandbox[] }
export interface SandboxPage { sandboxes: ListedSandbox[], total: number, next?: string }

export interface Identity { owner: string, scope: 'read' | 'session' | 'admin', key?: string }

export interface Node {
  name: string
  version: string
  accelerator: string
  kvm: { usable: boolean, reason: string }
  cpus: number
  memory_mb: number
  memory_available_mb?: number
  load1?: number
  sandboxes: Record<State, number>
  max_sandboxes: number
  image: { path?: string, id?: string, error?: string }
  redis: { up: boolean, url: string }
}

export interface Idle {
  state: State
  why: string
  deadline_at?: string
  timeout_s?: number
  holders?: { kind: string, name?: string, command?: string, pid?: number }[]
}

export interface LiveEvent {
  id: string
  type: string
  time?: string
  owner?: string
  session?: string
  sandbox?: string
  label?: string
  state?: State
  reason?: string
  stats?: Stats
  [member: string]: unknown
}

export interface Traffic {
  at: string
  interval_ms?: number
  requests?: number
  status_2xx?: number
  status_3xx?: number
  status_4xx?: number
  status_5xx?: number
  connections?: number
  tunnels?: number
  p50_ms?: number
  p90_ms?: number
  p99_ms?: number
}

export interface AuditEntry { id: string, time: string, owner: string, key: string, method: string, path: string, status: number, from?: string, uid?: number }
