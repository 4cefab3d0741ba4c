// The distribution's Chromium, headless, with a profile of its own. use(page) ends it.
import { chromium } from 'playwright-core'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export async function browse (args, use) {
  const profile = mkdtempSync(join(tmpdir(), 'transom-chromium-'))
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: '/usr/bin/chromium',
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
      '--disable-dev-shm-usage', ...args]
  })
  try {
    return await use(context.pages()[0] ?? await context.newPage())
  } finally {
    await context.close()
    rmSync(profile, { recursive: true, force: true })
  }
}
