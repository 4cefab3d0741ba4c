# SPDX-License-Identifier: MIT
# The initrd (agent and modules) and the image folder.
# shellcheck shell=bash disable=SC2154  # variables: set by steps.sh

# An uncompressed cpio of: /init (the agent), /modules, and the folders that init mounts on.
# Unpacking it costs less than unpacking a compressed one.
make_initrd()
{
    local tree=$work/initrd
    mkdir -p "$tree"/{dev,proc,sys,run,root,modules}
    run "making the initrd" install -m 755 "$agent" "$tree/init"
    run "making the initrd" cp "$cache/roots/$root_key"/modules/* "$tree/modules/"
    # The kernel opens /dev/console for init before anything is mounted.
    run "making the initrd" mknod -m 600 "$tree/dev/console" c 5 1
    (cd "$tree" && find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort |
        cpio --quiet --reproducible -o -H newc -R 0:0 >"$out/initrd") 2>>"$log" ||
        explain "making the initrd"
}

link_root()
{
    local file
    for file in root.erofs vmlinux vmlinuz packages.txt; do
        [ ! -e "$cache/roots/$root_key/$file" ] ||
            run "linking $file" ln "$cache/roots/$root_key/$file" "$out/$file"
    done
}

# image.json, last. "id" names the bytes that a machine sees: a snapshot or an overlay belongs to it.
image_json()
{
    local kernel=vmlinux
    [ -e "$out/$kernel" ] || kernel=vmlinuz
    run "writing the image" sync "$out"/*
    jq -n --slurpfile root "$cache/roots/$root_key/root.json" --arg key "$image_key" \
        --arg root_key "$root_key" --arg created_at "$(date -u +%Y-%m-%dT%H:%M:%SZ)" --arg kernel_file $kernel \
        --arg id "$(cd "$out" && sha256sum $kernel initrd root.erofs | sha256sum | cut -c1-64)" \
        --arg agent_sha256 "$(sha256sum <"$agent" | cut -d' ' -f1)" \
        --argjson kernel_bytes "$(stat -c %s "$out/$kernel")" \
        --argjson initrd_bytes "$(stat -c %s "$out/initrd")" \
        --argjson root_bytes "$(stat -c %s "$out/root.erofs")" \
        '{format: 1, key: $key, id: $id, root_key: $root_key, created_at: $created_at,
          files: {kernel: $kernel_file, initrd: "initrd", root: "root.erofs"},
          bytes: {kernel: $kernel_bytes, initrd: $initrd_bytes, root: $root_bytes},
          agent_sha256: $agent_sha256, root: $root[0]}' >"$out/image.json.new"
    run "writing the image" sync "$out/image.json.new"
    mv "$out/image.json.new" "$out/image.json"
}

describe_image()
{
    jq -r '"root.erofs \(.bytes.root / 1048576 | floor) MiB from \(.root.tree_bytes / 1048576 | floor) MiB, " +
        "\(.files.kernel) \(.bytes.kernel / 1048576 | floor) MiB, initrd \(.bytes.initrd / 1048576 * 10 | floor / 10) MiB; " +
        "kernel \(.root.kernel), node \(.root.node), \(.root.packages) packages"' "$image/image.json"
}
