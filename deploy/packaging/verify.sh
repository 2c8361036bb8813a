#!/bin/sh
# verify.sh DIR: checks the packages in DIR, each kind where this host has its tools: it can be installed, and what is in
# it is whole. Installs nothing.
set -eu
fail() { echo "$1" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# whole ROOT: the program runs, the unit and the files that it names are there, no link between documents leads nowhere.
whole() {
    "$1/usr/bin/mirrord" version
    for file in $(sed -nE 's|^Documentation=file://||p; s|^ExecStart=[^ ]+ run --config ||p' "$1/usr/lib/systemd/system/mirrord.service"); do
        [ -f "$1$file" ] || fail "mirrord.service names $file, which is not packaged"
    done
    for doc in "$1"/usr/share/doc/mirrord/*.md; do
        for link in $(grep -oE '\]\([A-Za-z_./-]+\.md' "$doc" | cut -c3-); do
            [ -f "$(dirname "$doc")/$link" ] || fail "$(basename "$doc") links to $link, which is not packaged"
        done
    done
}

if command -v dpkg-deb >/dev/null; then
    for package in "$1"/*.deb; do
        dpkg-deb --info "$package" >"$work/info"
        dpkg --force-not-root --force-architecture --no-act --install "$package"
        dpkg-deb --extract "$package" "$work/deb"
        whole "$work/deb"
    done
fi
if command -v rpm >/dev/null; then
    for package in "$1"/*.rpm; do
        rpm --query --info --package "$package"
        rpm --install --test --nodeps --ignorearch "$package"
    done
fi
