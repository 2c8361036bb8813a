#!/bin/sh
# Checks the unit: no unknown settings, and an exposure of at most 2.0. Does nothing where systemd-analyze is missing.
set -eu
cd "$(dirname "$0")"
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not there, unit not checked"; exit 0; }

# A copy whose program exists, so that only the unit itself is judged.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed 's|^ExecStart=/usr/bin/mirrord|ExecStart=/bin/true|; s|^Documentation=.*||; s|^User=.*|User=root|; s|^Group=.*||' mirrord.service >"$work/mirrord.service"
complaints=$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$work/mirrord.service" 2>&1 | grep mirrord.service || true)
[ -z "$complaints" ] || { echo "$complaints"; exit 1; }

systemd-analyze security --offline=true --threshold=20 mirrord.service >"$work/report" || { cat "$work/report"; exit 1; }
tail -n 1 "$work/report"
