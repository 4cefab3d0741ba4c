# SPDX-License-Identifier: MIT
# The kernel, and which of its modules go where.
# shellcheck shell=bash disable=SC2154  # variables: set by steps.sh

add_kernel()
{
    local deb src kept version rc=0

    mkdir "$work/kernel"
    for deb in "$work"/kernel-debs/*.deb; do
        run "unpacking the kernel" dpkg-deb -x "$deb" "$work/kernel"
    done
    version=$(basename "$work"/kernel/boot/vmlinuz-*)
    version=${version#vmlinuz-}
    echo "$version" >"$work/kernel-version"
    src=$work/kernel/usr/lib/modules/$version
    [ -e "$src" ] || src=$work/kernel/lib/modules/$version

    # Direct boot of the ELF kernel where it can be had, else the distribution's file.
    "$here/lib/extract_vmlinux.py" "$work/kernel/boot/vmlinuz-$version" "$out/vmlinux" >>"$log" 2>&1 || rc=$?
    case $rc in
    0) ;;
    3) run "copying the kernel" cp "$work/kernel/boot/vmlinuz-$version" "$out/vmlinuz" ;;
    *) explain "unpacking the kernel" ;;
    esac

    kept=$root/usr/lib/modules/$version
    mkdir -p "$kept"
    run "copying modules" cp "$src"/modules.builtin "$src"/modules.builtin.modinfo "$src"/modules.order "$kept/"
    (cd "$src" && list modules-root.list | sed 's,^,kernel/,' | while read -r m; do
        if [ -e "$m" ]; then
            printf '%s\0' "$m"
        elif compgen -G "$m*" >/dev/null; then # compressed: NAME.ko.zst
            printf '%s\0' "$m"*
        fi # else built in, or not of this kernel
    done | xargs -0r cp -r --parents -t "$kept") >>"$log" 2>&1 || explain "copying modules"
    run "indexing modules" chroot "$root" depmod "$version"
    initrd_modules "$src/kernel"
    rm -rf "$work/kernel" "$work/kernel-debs"
}

# The initrd's modules, plain, in $out/modules, in load order; load.list is what the agent reads:
# "FILE [DEVICE]" a line. $1: the kernel's own module folder.
initrd_modules()
{
    local path device file optional n=0
    mkdir "$out/modules"
    while read -r path device; do
        optional=
        [ "${path#\?}" = "$path" ] || optional=yes
        path=${path#\?}
        file=$(printf '%02d-%s.ko' "$n" "${path##*/}")
        if [ -e "$1/$path.ko" ]; then
            run "copying modules" cp "$1/$path.ko" "$out/modules/$file"
        elif [ -e "$1/$path.ko.zst" ]; then
            run "copying modules" zstd -qdo "$out/modules/$file" "$1/$path.ko.zst"
        elif [ -e "$1/$path.ko.xz" ]; then
            xz -dc "$1/$path.ko.xz" >"$out/modules/$file" 2>>"$log" || explain "copying modules"
        elif [ -n "$optional" ] || grep -qx "kernel/$path.ko" "$1/../modules.builtin"; then
            continue
        else
            fail "this kernel has no module $path, which modules-initrd.list wants"
        fi
        echo "$file${device:+ $device}" >>"$out/modules/load.list"
        n=$((n + 1))
    done < <(list modules-initrd.list)
}
