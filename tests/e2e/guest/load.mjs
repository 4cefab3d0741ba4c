// A small server on 8080, one process: GET / answers a few hundred bytes.
import { createServer } from 'node:http'

const body = Buffer.from('small answer '.repeat(24) + '\n')
const server = createServer((request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain', 'content-length': body.length })
  response.end(body)
})
server.keepAliveTimeout = 60000
server.listen(8080, '0.0.0.0', 511)
