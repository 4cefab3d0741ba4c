/* SPDX-License-Identifier: MIT */
/* Profiles: APIs with their keys in ~/.config/transom/profiles.json, which only its owner may read.
 */
#ifndef VMM_CLI_PROFILE_H
#define VMM_CLI_PROFILE_H

#include <jansson.h>
#include <stdbool.h>

#define PROFILE_LOCAL    "local" /* the manager's socket on this host; always there */
#define PROFILE_NAME_MAX 64
#define PROFILE_API_MAX  512
#define PROFILE_KEY_MAX  128

struct profile {
    char name[PROFILE_NAME_MAX + 1];
    char api[PROFILE_API_MAX + 1]; /* "": local */
    char key[PROFILE_KEY_MAX + 1];
};

/* All: {"current": NAME, "profiles": {NAME: {"api", "key"}}} (new; an empty one when there is no
 * file). NULL after saying why: the file is not ours, others can read it, or it is damaged. */
json_t *profiles_read(void);
/* Write the file anew, whole or not at all. Returns 0, or 1 after saying why. */
int profiles_write(const json_t *all);
/* The profile of that name, or with NULL the current one. Returns 0, or 1 after saying why. */
int profile_find(const char *name, struct profile *out);
/* Letters, digits, ".", "_" and "-". */
bool profile_name_valid(const char *name);

#endif
