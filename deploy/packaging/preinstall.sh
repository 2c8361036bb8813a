#!/bin/sh
# The files are owned by this group, so it must exist before they are unpacked.
set -e
if ! getent group mirrord >/dev/null 2>&1; then
    groupadd --system mirrord
fi
if ! getent passwd mirrord >/dev/null 2>&1; then
    useradd --system --gid mirrord --home-dir /var/lib/mirrord --no-create-home --shell /usr/sbin/nologin mirrord
fi
