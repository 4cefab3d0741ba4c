// WebSocket echo server on 8080, as a person's app would have it; GET / says it is up.
import { createServer } from 'node:http'
import { WebSocketServer } from 'ws'

const server = createServer((request, response) => response.end('echo\n'))
const sockets = new WebSocketServer({ server, maxPayload: 16 << 20 })
sockets.on('connection', (socket) => {
  socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
})
server.listen(8080, '0.0.0.0')
