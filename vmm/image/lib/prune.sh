# SPDX-License-Identifier: MIT
# Remove images that nobody asked for in a week. An image is half a gigabyte and each change of the
# agent or the recipe makes another.
# shellcheck shell=bash disable=SC2154  # cache, image: set by ../build

keep_days=7

# Does any process, such as a machine, have the root file system of the image $1 open? By inode, since
# machines see it under another name. find's own status says only that processes ended meanwhile.
is_open()
{
    [ -n "$(find -L /proc/[0-9]*/fd -maxdepth 1 -samefile "$1/root.erofs" -print -quit 2>/dev/null || true)" ]
}

# Called with the cache locked.
remove_unused()
{
    local file dir
    for file in "$cache"/images/*/image.json; do
        dir=${file%/image.json}
        if [ "$dir" = "$image" ] || [ -z "$(find "$file" -mtime +"$keep_days")" ] || is_open "$dir"; then
            continue
        fi
        # Away from its name first, so that half of it can never be found.
        mv -T "$dir" "$work/unused" && rm -rf "$work/unused"
    done
    for dir in "$cache"/roots/*/; do
        dir=${dir%/}
        # A root that no image shares has one link only.
        if [ "$(stat -c %h "$dir/root.erofs" 2>/dev/null || echo 1)" -le 1 ]; then
            mv -T "$dir" "$work/unused" && rm -rf "$work/unused"
        fi
    done
}
