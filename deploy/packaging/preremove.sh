#!/bin/sh
# $1 is "remove" (deb) or 0 (rpm) when the package goes away, something else on upgrade.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
    systemctl disable --now mirrord.service || true
fi
