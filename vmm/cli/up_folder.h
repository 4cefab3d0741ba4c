/* SPDX-License-Identifier: MIT */
/* A local folder as transom up knows it: what it was bound to before is remembered beside the
 * user's other state, not in the folder (~/.local/state/transom/folders). One transom up at a time
 * holds it.
 *
 * A folder is known by its path and by which folder that is (inode and time of birth): one that was
 * made anew under an old name is another, so that what is not in it does not count as deleted. */
#ifndef VMM_CLI_UP_FOLDER_H
#define VMM_CLI_UP_FOLDER_H

#include <jansson.h>
#include <stdbool.h>

#define UP_ID_LEN 32 /* hexadecimal digits */

struct up_folder {
    char *path; /* absolute, without links */
    int root;   /* open for reading */
    /* private */
    int lock;
    char *file;
    json_t *record;
};

/* Open, lock and look up. Returns 0, or 1 after saying why. */
int up_folder_open(const char *dir, struct up_folder *f);
void up_folder_close(struct up_folder *f);
/* The session that it was bound to last at this API (borrowed); NULL: none. */
const char *up_folder_session(const struct up_folder *f, const char *api);
/* Its id for this session: the one it has, or a new one, remembered from now on. Returns 0, or 1
 * after saying why. */
int up_folder_id(struct up_folder *f, const char *api, const char *session, char id[UP_ID_LEN + 1]);
/* Is nothing in it that could be kept in step? .git does not count. */
bool up_folder_is_empty(const struct up_folder *f);
/* Does its path still lead to it? */
bool up_folder_is_there(const struct up_folder *f);

#endif
