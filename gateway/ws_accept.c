/* SPDX-License-Identifier: MIT */
#include "gateway/ws_accept.h"

#include <assert.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/sha.h>

static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

void gw_ws_accept(const char *key, size_t key_len, char out[GW_WS_ACCEPT_LEN + 1])
{
    unsigned char digest[SHA_DIGEST_LENGTH], text[GW_WS_KEY_MAX + sizeof(guid)];

    assert(key_len <= GW_WS_KEY_MAX);
    memcpy(text, key, key_len);
    memcpy(text + key_len, guid, sizeof(guid) - 1);
    SHA1(text, key_len + sizeof(guid) - 1, digest);
    EVP_EncodeBlock((unsigned char *)out, digest, sizeof(digest));
}
