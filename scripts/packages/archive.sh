#!/bin/sh
# Packs a folder as a .tar.gz that has the same bytes for the same content: scripts/packages/archive.sh FOLDER FILE. The
# time of every entry is SOURCE_DATE_EPOCH, its owner is root, and only the executable bit of its mode counts.
set -eu
LC_ALL=C tar -C "$(dirname "$1")" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
  --mode=u=rwX,go=rX --format=gnu -cf - "$(basename "$1")" | gzip -9n >"$2"
