# SPDX-License-Identifier: MIT
# Turn the unpacked packages into our system: files, user, units, certificates; then pack it.
# shellcheck shell=bash disable=SC2154  # variables: set by steps.sh

finish_tree()
{
    local file mode
    # Modes come from the executable bit alone, whatever the umask of the checkout was.
    while read -r file; do
        mode=644
        [ ! -x "$here/files/$file" ] || mode=755
        run "copying files" install -D -m "$mode" "$here/files/$file" "$root/$file"
    done < <(cd "$here/files" && find . -type f -printf '%P\n')
    run "copying files" chmod 440 "$root/etc/sudoers.d/transom"
    run "checking sudoers" chroot "$root" visudo -cqf /etc/sudoers.d/transom
    add_certificates
    guest_registries
    add_user
    mask_units
    clean_tree
}

add_certificates()
{
    local bundle=/etc/ssl/certs/ca-certificates.crt

    echo 'LANG=C.UTF-8' >"$root/etc/environment"
    echo 'LANG=C.UTF-8' >"$root/etc/default/locale"
    [ -n "$opt_ca_dir" ] || return 0
    mkdir -p "$root/usr/local/share/ca-certificates/transom"
    find "$opt_ca_dir" -name '*.crt' -type f \
        -exec cp -t "$root/usr/local/share/ca-certificates/transom/" {} +
    run "installing certificates" chroot "$root" update-ca-certificates
    # Programs with a bundle of their own are pointed at the system's.
    cat >>"$root/etc/environment" <<-END
	NODE_EXTRA_CA_CERTS=$bundle
	SSL_CERT_FILE=$bundle
	REQUESTS_CA_BUNDLE=$bundle
	PIP_CERT=$bundle
	END
}

# The guest installs from where this image came from.
guest_registries()
{
    local keyring=$opt_keyring
    if [ ! -e "$root$keyring" ] || ! cmp -s "$keyring" "$root$keyring"; then
        keyring=/usr/share/keyrings/transom-archive-keyring.gpg
        run "copying the keyring" install -m 644 "$opt_keyring" "$root$keyring"
    fi
    rm -f "$root"/etc/apt/sources.list.d/*
    deb_lines "$keyring" | without_credentials >"$root/etc/apt/sources.list"
    # mmdebstrap left its own options; the guest gets the host's, and files/ has the rest.
    rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
    host_apt_settings | for_guest >"$root/etc/apt/apt.conf.d/80host"
    [ -s "$root/etc/apt/apt.conf.d/80host" ] || rm "$root/etc/apt/apt.conf.d/80host"

    # npm's built-in file, since the user's prefix moves the place of the global one; pnpm reads
    # the global one.
    {
        echo 'nodedir=/usr/local'
        echo 'update-notifier=false'
        [ -z "$opt_npm_registry" ] || echo "registry=$opt_npm_registry" | without_credentials
        [ -z "$opt_ca_dir" ] || echo 'cafile=/etc/ssl/certs/ca-certificates.crt'
    } >"$root/usr/local/lib/node_modules/npm/npmrc"
    mkdir -p "$root/usr/local/etc"
    cp "$root/usr/local/lib/node_modules/npm/npmrc" "$root/usr/local/etc/npmrc"
}

add_user()
{
    run "adding the user" chroot "$root" useradd --create-home --uid 1000 --user-group \
        --groups sudo,adm,systemd-journal --shell /bin/bash sandbox
    # npm install -g and pnpm add -g without sudo.
    printf '%s\n' prefix=/home/sandbox/.local global-bin-dir=/home/sandbox/.local/bin \
        >"$root/home/sandbox/.npmrc"
    mkdir -p "$root/home/sandbox/.local/bin"
    chroot "$root" chown -R sandbox:sandbox /home/sandbox
    run "making the virtual environment" chroot "$root" setpriv --reuid=sandbox --regid=sandbox \
        --init-groups env HOME=/home/sandbox python3 -m venv /home/sandbox/user_venv
}

mask_units()
{
    local unit
    mkdir -p "$root/etc/systemd/system-generators"
    while read -r unit; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done < <(list masked-units.list)
    while read -r unit; do
        ln -sf /dev/null "$root/etc/systemd/system-generators/$unit"
    done < <(list masked-generators.list)
    # These two start when somebody speaks to them, which often enough is never: a sixth of the
    # processor time of a start.
    for unit in dbus.service systemd-logind.service; do
        rm -f "$root/usr/lib/systemd/system/multi-user.target.wants/$unit"
    done
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
    run "disabling ssh" chroot "$root" /usr/bin/systemctl disable ssh.service
}

clean_tree()
{
    # Each machine makes its own identity.
    : >"$root/etc/machine-id"
    rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id" "$root/etc/resolv.conf"
    : >"$root/etc/resolv.conf" # the agent writes it
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb \
        "$root"/var/log/* "$root"/tmp/* "$root"/run/* "$root"/boot/vmlinuz* "$root"/var/cache/debconf/*-old
    # Embedding Python statically is not what the headers are for.
    find "$root/usr/lib" -name 'libpython*.a' -delete
    # Packages that make links to manuals want their folders.
    mkdir -p "$root"/usr/share/man/man{1,2,3,4,5,6,7,8}
}

pack_tree()
{
    run "packing the root file system" mkfs.erofs -zlz4 "$out/root.erofs" "$root"
}

root_json()
{
    local -a args=()
    # shellcheck disable=SC2016  # dpkg's own variables
    chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' >"$out/packages.txt"
    args=(--arg suite "$opt_suite" --arg distro "$opt_distro" --arg mirror "$opt_mirror"
        --arg kernel "$(cat "$work/kernel-version")"
        --arg node "$("$root/usr/local/bin/node" --version)"
        --arg sha256 "$(sha256sum <"$out/root.erofs" | cut -d' ' -f1)"
        --argjson packages "$(wc -l <"$out/packages.txt")"
        --argjson tree_bytes "$(du -sxb "$root" | cut -f1)"
        --argjson build_seconds "$(elapsed)")
    run "describing the root file system" sync "$out/root.erofs"
    jq -n "${args[@]}" '$ARGS.named' >"$out/root.json.new"
    run "describing the root file system" sync "$out/root.json.new"
    mv "$out/root.json.new" "$out/root.json"
}
