#!/bin/sh
# Takes out of the image's system what only builds need, and what gives a process more rights than its user has.
# The list of Debian's packages stays: scanners read it.
#   docker/strip-system.sh [ROOT]
set -eu
root=${1:-}

rm -rf "$root"/usr/local/lib/python3*/site-packages/pip* "$root"/usr/local/lib/python3*/ensurepip "$root"/usr/local/bin/pip*
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/* "$root"/var/log/* "$root"/tmp/*
find "$root/" -xdev -type f -perm /6000 -exec chmod a-s {} +
