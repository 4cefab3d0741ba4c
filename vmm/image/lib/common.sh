# SPDX-License-Identifier: MIT
# What every part of the image builder uses: messages with elapsed time, and checks of the host.
# shellcheck shell=bash disable=SC2154  # here: set by ../build

started_at=${started_at:-$(date +%s.%N)}
export started_at

# Elapsed seconds since the build began.
elapsed()
{
    awk -v a="$started_at" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'
}

# Progress goes to stderr: stdout holds the result alone, the image's path.
say()
{
    printf '[%6s s] %s\n' "$(elapsed)" "$*" >&2
}

fail()
{
    printf 'build: %s\n' "$*" >&2
    exit 1
}

# The lines of a list file, without comments.
list()
{
    sed -e 's/[[:space:]]*#.*//' -e '/^$/d' "$here/$1"
}

require_root()
{
    [ "$(id -u)" = 0 ] || fail "run this as root: it makes a root file system owned by root"
}

require_programs()
{
    local missing='' pair
    for pair in mmdebstrap:mmdebstrap mkfs.erofs:erofs-utils cpio:cpio jq:jq lz4:lz4 zstd:zstd xz:xz-utils \
        npm:npm strip:binutils python3:python3 setpriv:util-linux unshare:util-linux; do
        command -v "${pair%%:*}" >/dev/null || missing+=" ${pair#*:}"
    done
    [ -z "$missing" ] || fail "programs are missing; run: apt-get install$missing"
}

# Free MiB where $1 lies.
free_mb()
{
    df -Pm "$1" | awk 'NR == 2 { print $4 }'
}
