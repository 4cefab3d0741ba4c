# SPDX-License-Identifier: MIT
# The keys under which results are cached: hashes over all that decides what a build makes, except
# what the mirrors hold at that moment (--force builds again).
# shellcheck shell=bash disable=SC2154  # here, opt_*: set by ../build

# Files that shape only the initrd, and so do not make the root file system stale.
initrd_recipe='lib/initrd.sh'
# Files that do not shape the result at all.
no_recipe='build lib/common.sh lib/key.sh lib/prune.sh lib/settings.py lib/steps.sh'

# The agent to put in the initrd: the one named, else the newest built one.
find_agent()
{
    local found=$1
    if [ -z "$found" ]; then
        found=$here/../transom-agent # where it is installed
        [ -e "$found" ] || found=$(find "$here/../../build" -path '*/bin/transom-agent' -type f -printf '%T@ %p\n' \
            2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)
        [ -n "$found" ] ||
            fail "no transom-agent under build/: build it (cmake --preset release && cmake --build --preset release --target transom-agent) or name one with --agent"
    fi
    [ -r "$found" ] || fail "cannot read the agent $found: name it with --agent"
    if head -c 4096 "$found" | grep -qa ld-linux; then
        fail "the agent $found is not static, and nothing in the initrd could load it: build one without sanitizers"
    fi
    readlink -f "$found"
}

# Name, mode and content of each recipe file.
recipe_hash()
{
    (cd "$here" && find . -type f ! -name '*.md' ! -name '*.pyc' -printf '%P\n' | LC_ALL=C sort |
        while read -r f; do
            case " $no_recipe " in *" $f "*) continue ;; esac
            case " $initrd_recipe " in
            *" $f "*) [ "$1" = initrd ] || continue ;;
            *) [ "$1" = root ] || continue ;;
            esac
            printf '%s %s ' "$f" "$([ -x "$f" ] && echo x)"
            sha256sum <"$f"
        done) | sha256sum | cut -c1-64
}

root_key()
{
    {
        recipe_hash root
        printf '%s\0' "$opt_suite" "$opt_mirror" "$opt_security_mirror" "$opt_npm_registry"
        sha256sum <"$opt_keyring"
        if [ -n "$opt_ca_dir" ]; then
            find "$opt_ca_dir" -name '*.crt' -type f -print0 | LC_ALL=C sort -z | xargs -0r cat | sha256sum
        fi
    } | sha256sum | cut -c1-32
}

# $1: root key, $2: agent.
image_key()
{
    { echo "$1" && recipe_hash initrd && sha256sum <"$2"; } | sha256sum | cut -c1-32
}
