/* SPDX-License-Identifier: MIT */
/* transom-webhook: one POST, for the manager. The job comes as JSON on standard input, the verdict
 * goes to standard output as {"status": N} or {"error": "why there is none"}. It gives up its
 * rights before it looks at any URL, follows no redirect, uses no proxy, and each address is judged
 * when it is connected to, whatever a name server said before. */
#include <curl/curl.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "vmm/send/address.h"

#define ANSWER_MAX_BYTES 65536
#define TIMEOUT_MS       10000
#define CONNECT_MS       5000

struct call {
    const json_t *allow;
    bool refused; /* an address was */
    size_t n;     /* bytes of the answer */
};

static int say(json_t *verdict)
{
    int r = json_dumpf(verdict, stdout, JSON_COMPACT);

    json_decref(verdict);
    return r == 0 && fflush(stdout) == 0 ? 0 : 1;
}

static int say_error(const char *text)
{
    return say(json_pack("{ss}", "error", text));
}

/* Returns 0, or -errno when rights are left. */
static int drop_rights(uid_t uid, gid_t gid)
{
    const struct rlimit none = {0, 0}, files = {64, 64}, cpu = {20, 20};

    (void)setrlimit(RLIMIT_CORE, &none); /* lowering cannot fail */
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)setrlimit(RLIMIT_CPU, &cpu);
    (void)setrlimit(RLIMIT_FSIZE, &none);
    if (geteuid() == 0 && (uid == 0 || setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 ||
                           setresuid(uid, uid, uid) != 0))
        return uid == 0 ? -EPERM : -errno;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : -errno;
}

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct call *call = arg;

    if (purpose != CURLSOCKTYPE_IPCXN || !send_address_allowed(&address->addr, call->allow)) {
        call->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t on_answer(char *data, size_t size, size_t n, void *arg)
{
    struct call *call = arg;

    (void)data;
    call->n += size * n;
    return call->n > ANSWER_MAX_BYTES ? 0 : size * n; /* the status is what counts */
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    char text[256];
    struct curl_slist *longer;

    snprintf(text, sizeof(text), "%s: %s", name, value != NULL ? value : "");
    longer = curl_slist_append(list, text);
    if (longer == NULL)
        abort();
    return longer;
}

static int post(const json_t *job)
{
    struct call call = {.allow = json_object_get(job, "allow")};
    const char *body = json_string_value(json_object_get(job, "body"));
    char error[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    CURL *curl = curl_easy_init();
    long status = 0;
    CURLcode r;

    if (curl == NULL || body == NULL)
        return say_error("there is no job");
    headers = add_header(headers, "Content-Type", "application/json");
    headers = add_header(headers, "Transom-Event", json_string_value(json_object_get(job, "type")));
    headers =
        add_header(headers, "Transom-Delivery", json_string_value(json_object_get(job, "id")));
    headers = add_header(headers, "Transom-Signature",
                         json_string_value(json_object_get(job, "signature")));
    headers = add_header(headers, "Expect", "");
    curl_easy_setopt(curl, CURLOPT_URL, json_string_value(json_object_get(job, "url")));
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "transom/" TRANSOM_VERSION);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, &call);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &call);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    r = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    if (status >= 200)
        return say(json_pack("{sI}", "status", (json_int_t)status));
    if (call.refused)
        return say_error("the address is private or this host's own: webhooks go to public ones "
                         "alone (vmm.webhook_allow)");
    return say_error(*error != '\0' ? error : curl_easy_strerror(r));
}

int main(void)
{
    json_error_t fault;
    json_t *job;
    int status;

    /* The user to become stands in the job: it is read first, by a parser that knows nothing of
     * URLs. */
    job = json_loadf(stdin, JSON_REJECT_DUPLICATES, &fault);
    if (!json_is_object(job)) {
        json_decref(job);
        return say_error("the job is no JSON");
    }
    if (drop_rights((uid_t)json_integer_value(json_object_get(job, "uid")),
                    (gid_t)json_integer_value(json_object_get(job, "gid"))) != 0)
        status = say_error("its rights cannot be given up");
    else if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        status = say_error("libcurl does not start");
    else
        status = post(job);
    json_decref(job);
    return status;
}
