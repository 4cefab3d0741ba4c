# SPDX-License-Identifier: MIT
# The build itself, step by step; run by ../build as the first process of its own namespaces, with
# the cache locked. Any step that fails ends the build; ../build removes the work folder.
# shellcheck shell=bash source-path=SCRIPTDIR/.. disable=SC2154  # variables: exported by ../build
set -euo pipefail

. "$here/lib/common.sh"
. "$here/lib/mirror.sh"
. "$here/lib/tree.sh"
. "$here/lib/kernel.sh"
. "$here/lib/finish.sh"
. "$here/lib/initrd.sh"
eval "$settings"

umask 022
export LC_ALL=C.UTF-8
export DEBIAN_FRONTEND=noninteractive
log=$work/log
root=$work/root
out=$work/out
need_mb=${TRANSOM_IMAGE_NEED_MB:-2500} # the tree, its packed form, and the downloads
hint='' # what to do when the step at hand fails

# run WHAT COMMAND...: one command of the build, its output kept for the message of a failure.
run()
{
    local what=$1
    shift
    "$@" >>"$log" 2>&1 || explain "$what"
}

# Say why a step failed, as far as the host can tell. The log file goes with the work folder.
explain()
{
    tail -n 15 "$log" 2>/dev/null | sed 's/^/    /' >&2 || true
    if [ "$(free_mb "$work")" -lt 8 ] || grep -qs 'No space left on device' "$log"; then
        fail "$1 failed: the disk that holds $cache is full. Free about $need_mb MB there, or choose another folder with --cache or cache_dir"
    fi
    fail "$1 failed; the lines above are the end of its output${hint:+. $hint}"
}
trap 'explain "line $LINENO of ${BASH_SOURCE[0]##*/} ($BASH_COMMAND)"' ERR
set -E

# Put a finished folder in its place. Its files are on disk before the name is.
publish()
{
    local from=$1 to=$2
    run "writing $to" sync -f "$from"
    if [ -e "$to" ]; then # --force, or a folder without its .json
        run "replacing $to" mv -T "$to" "$work/old.$RANDOM"
    fi
    run "naming $to" mv -T "$from" "$to"
    run "writing $to" sync "$(dirname "$to")"
}

build_root()
{
    local free
    free=$(free_mb "$work")
    [ "$free" -ge "$need_mb" ] ||
        fail "the disk is too full: $cache has $free MB free and the build needs $need_mb: free some space, or choose another folder with --cache or cache_dir"
    say "distribution $opt_distro $opt_suite from $opt_mirror"
    check_mirrors
    say "unpacking packages"
    make_tree
    say "adding Node.js"
    add_node
    say "adding the kernel's modules"
    add_kernel
    say "configuring"
    finish_tree
    say "packing the root file system"
    pack_tree
    root_json
    keep_debs
    publish "$out" "$cache/roots/$root_key"
}

if [ -n "$opt_force" ] || [ ! -e "$cache/roots/$root_key/root.json" ]; then
    mkdir "$out"
    build_root
    rm -rf --one-file-system "$root"
fi
say "making the initrd"
mkdir "$out"
make_initrd
link_root
image_json
publish "$out" "$image"
say "done: $(describe_image)"
