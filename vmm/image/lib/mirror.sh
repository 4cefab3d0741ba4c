# SPDX-License-Identifier: MIT
# The package mirrors: are they there, and how apt names them.
# shellcheck shell=bash disable=SC2154  # opt_*, work, log: set by steps.sh

# Settings of the host's apt that mirrors can depend on, for the build and for the guest.
host_apt_settings()
{
    apt-config dump 2>/dev/null |
        grep -E '^Acquire::((https?|ftp)::Proxy|Check-Valid-Until|Check-Date) ' || true
}

# The guest is not trusted with the host's passwords.
without_credentials()
{
    sed -E 's,(://)[^/@[:space:]]*@,\1,g'
}

# Of the host's apt settings, those that can work in the guest: a proxy on the host's own loopback
# interface cannot, nor can one that wants a password.
for_guest()
{
    grep -v -E '://([^/"]*@|localhost|127\.|\[::1\])' || true
}

apt_components()
{
    if [ "$opt_distro" = ubuntu ]; then echo main universe; else echo main; fi
}

# The suites and their mirrors, "SUITE URL" a line.
suites()
{
    echo "$opt_suite $opt_mirror"
    echo "$opt_suite-updates $opt_mirror"
    echo "$opt_suite-security $opt_security_mirror"
}

# Ask each mirror for its signed index before anything is spent on the rest.
check_mirrors()
{
    local suite url
    while read -r suite url; do
        if ! /usr/lib/apt/apt-helper -o Acquire::Retries=1 -o Acquire::http::Timeout=15 \
            -o Acquire::https::Timeout=15 download-file "$url/dists/$suite/InRelease" \
            "$work/InRelease" >>"$log" 2>&1; then
            tail -n 3 "$log" | sed 's/^/    /' >&2
            fail "the mirror does not answer with $url/dists/$suite/InRelease: check the network and the URL, or choose another mirror with --mirror, --security-mirror or image.mirror"
        fi
    done < <(suites)
    rm -f "$work/InRelease"
}

# $1: path of the keyring as apt will see it.
deb_lines()
{
    local suite url
    while read -r suite url; do
        echo "deb [signed-by=$1] $url $suite $(apt_components)"
    done < <(suites)
}
