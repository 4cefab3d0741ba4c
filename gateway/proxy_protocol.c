/* SPDX-License-Identifier: MIT */
#include "gateway/proxy_protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define V1_MAX  107 /* section 2.1 */
#define V2_HEAD 16  /* section 2.2 */

static const char v1_begin[] = "PROXY ";
static const unsigned char v2_begin[] = "\r\n\r\n\0\r\nQUIT\n";

static int fault(const char **why, const char *reason)
{
    *why = reason;
    return -EPROTO;
}

static bool begins(const unsigned char *p, size_t n, const void *what, size_t len)
{
    return memcmp(p, what, n < len ? n : len) == 0;
}

/* The word at *at, up to the next space or the end; *at moves behind the space. false: it is empty
 * or too long. */
static bool take_word(const char **at, const char *end, char *word, size_t size)
{
    const char *space = memchr(*at, ' ', (size_t)(end - *at));
    size_t len = (size_t)((space != NULL ? space : end) - *at);

    if (len == 0 || len >= size)
        return false;
    memcpy(word, *at, len);
    word[len] = '\0';
    *at = space != NULL ? space + 1 : end;
    return true;
}

/* 0 to 65535, without a leading zero. */
static bool parse_port(const char *word, in_port_t *port)
{
    unsigned n = 0;

    if (word[0] == '0' && word[1] != '\0')
        return false;
    for (const char *p = word; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return false;
        n = n * 10 + (unsigned)(*p - '0');
        if (n > 65535)
            return false;
    }
    *port = htons((uint16_t)n);
    return true;
}

/* The addresses and ports of a line of version 1, from behind "TCP4 " or "TCP6 ". */
static bool parse_line(const char *at, const char *end, int family, union gw_peer *source)
{
    char word[INET6_ADDRSTRLEN];
    unsigned char other[16];
    in_port_t port, unused;
    bool ok;

    ok = take_word(&at, end, word, sizeof(word));
    if (family == AF_INET)
        ok = ok && inet_pton(AF_INET, word, &source->in.sin_addr) == 1;
    else
        ok = ok && inet_pton(AF_INET6, word, &source->in6.sin6_addr) == 1;
    ok = ok && take_word(&at, end, word, sizeof(word)) && inet_pton(family, word, other) == 1;
    ok = ok && take_word(&at, end, word, sizeof(word)) && parse_port(word, &port);
    /* The last word ends with the line, and not with a space. */
    ok = ok && end[-1] != ' ' && take_word(&at, end, word, sizeof(word)) && at == end &&
         parse_port(word, &unused);
    if (!ok)
        return false;
    if (family == AF_INET)
        source->in.sin_port = port;
    else
        source->in6.sin6_port = port;
    source->sa.sa_family = (sa_family_t)family;
    return true;
}

static int parse_v1(const unsigned char *p, size_t n, union gw_peer *source, const char **why)
{
    const char *line = (const char *)p + sizeof(v1_begin) - 1, *end;
    size_t look = n < V1_MAX ? n : V1_MAX;

    end = look >= sizeof(v1_begin) ? memchr(line, '\r', look - (sizeof(v1_begin) - 1)) : NULL;
    if (end == NULL || end + 1 == (const char *)p + look)
        return n < V1_MAX ? 0 : fault(why, "PROXY line without an end");
    if (end[1] != '\n')
        return fault(why, "PROXY line with a lone carriage return");
    if (end - line >= 7 && memcmp(line, "UNKNOWN", 7) == 0) {
        if (line + 7 != end && line[7] != ' ')
            return fault(why, "PROXY line of an unknown kind");
    } else if (end - line > 5 && memcmp(line, "TCP4 ", 5) == 0) {
        if (!parse_line(line + 5, end, AF_INET, source))
            return fault(why, "malformed PROXY TCP4 line");
    } else if (end - line > 5 && memcmp(line, "TCP6 ", 5) == 0) {
        if (!parse_line(line + 5, end, AF_INET6, source))
            return fault(why, "malformed PROXY TCP6 line");
    } else {
        return fault(why, "PROXY line of an unknown kind");
    }
    return (int)((const unsigned char *)end + 2 - p);
}

/* Type, length and value, one after the other, to the end. */
static bool are_tlvs(const unsigned char *p, size_t n)
{
    while (n >= 3) {
        size_t len = (size_t)p[1] << 8 | p[2];

        if (len > n - 3)
            return false;
        p += 3 + len;
        n -= 3 + len;
    }
    return n == 0;
}

static int parse_v2(const unsigned char *p, size_t n, union gw_peer *source, const char **why)
{
    size_t len, addresses = 0;
    const unsigned char *a = p + V2_HEAD;

    if (n > 12 && (p[12] & 0xf0) != 0x20)
        return fault(why, "PROXY header of another version");
    if (n > 12 && (p[12] & 0x0f) > 1)
        return fault(why, "PROXY header with an unknown command");
    if (n < V2_HEAD)
        return 0;
    len = (size_t)p[14] << 8 | p[15];
    if (V2_HEAD + len > GW_PROXY_HEADER_MAX)
        return fault(why, "PROXY header too long");
    if (n < V2_HEAD + len)
        return 0;
    if ((p[12] & 0x0f) == 0) /* LOCAL: from the proxy itself, the rest is to be skipped */
        return (int)(V2_HEAD + len);
    switch (p[13]) {
    case 0x00: /* UNSPEC: everything after is to be skipped */
        return (int)(V2_HEAD + len);
    case 0x11: /* TCP over IPv4 */
        addresses = 12;
        break;
    case 0x21: /* TCP over IPv6 */
        addresses = 36;
        break;
    case 0x31: /* a unix stream */
        addresses = 216;
        break;
    default:
        return fault(why, "PROXY header for another transport");
    }
    if (len < addresses || !are_tlvs(a + addresses, len - addresses))
        return fault(why, "malformed PROXY header");
    if (p[13] == 0x11) {
        source->in.sin_family = AF_INET;
        memcpy(&source->in.sin_addr, a, 4);
        memcpy(&source->in.sin_port, a + 8, 2);
    } else if (p[13] == 0x21) {
        source->in6.sin6_family = AF_INET6;
        memcpy(&source->in6.sin6_addr, a, 16);
        memcpy(&source->in6.sin6_port, a + 32, 2);
    }
    return (int)(V2_HEAD + len);
}

int gw_proxy_parse(const unsigned char *p, size_t n, union gw_peer *source, const char **why)
{
    union gw_peer found;
    int r;

    memset(source, 0, sizeof(*source)); /* AF_UNSPEC */
    memset(&found, 0, sizeof(found));
    if (n == 0)
        return 0;
    if (begins(p, n, v2_begin, sizeof(v2_begin) - 1))
        r = parse_v2(p, n, &found, why);
    else if (begins(p, n, v1_begin, sizeof(v1_begin) - 1))
        r = parse_v1(p, n, &found, why);
    else
        return fault(why, "no PROXY header, though the peer is in gateway.proxy_protocol");
    if (r > 0)
        *source = found;
    return r;
}
