// Hold one WebSocket open: each line of standard input is sent, each answer printed. The end of the
// input ends it; a connection that closes by itself is told as "closed". Arguments: URL, Host.
import { createInterface } from 'node:readline'
import WebSocket from 'ws'

const [url, host] = process.argv.slice(2)
const socket = new WebSocket(url, { headers: { host } })
socket.on('open', () => console.log('open'))
socket.on('message', (data) => console.log('got ' + data))
socket.on('error', (error) => console.log('error ' + error.message))
socket.on('close', () => { console.log('closed'); process.exit(1) })
createInterface({ input: process.stdin })
  .on('line', (line) => socket.send(line))
  .on('close', () => process.exit(0))
