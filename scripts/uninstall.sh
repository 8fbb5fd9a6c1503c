#!/bin/sh
# Removes what `cmake --install` (or `make install`) installed: scripts/uninstall.sh MANIFEST. The manifest is the list
# that the installation wrote. Folders of ingot's own that are then empty go too. DESTDIR is as for the installation.
set -eu
manifest=$1
[ -f "$manifest" ] || { echo "uninstall: $manifest is missing: only an installation from this build folder can be removed" >&2; exit 1; }
n=0
while IFS= read -r file || [ -n "$file" ]; do
  file=${DESTDIR:-}$file
  [ -e "$file" ] || [ -L "$file" ] || continue
  rm -- "$file" || { echo "uninstall: cannot remove $file: give the same rights as for the installation" >&2; exit 1; }
  n=$((n + 1))
  folder=$(dirname "$file")
  while case $folder in */ingot | */ingot/*) true ;; *) false ;; esac; do
    rmdir -- "$folder" 2>/dev/null || break
    folder=$(dirname "$folder")
  done
done <"$manifest"
echo "uninstall: removed $n files"
