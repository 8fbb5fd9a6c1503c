#!/bin/sh
# Makes a folder with Debian's libraries and headers of another architecture: scripts/sysroot.sh ARCHITECTURE FOLDER,
# e.g. arm64 build-arm/sysroot. The script unpacks packages and their dependencies there and installs nothing, so the
# machine's own package lists do not change. A complete folder is not changed.
set -eu

architecture=$1
root=$2
boost=libboost-dev
if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then boost=libboost1.81-dev; fi
packages="libc6-dev libstdc++6 libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev
  libcurl4-openssl-dev libssl-dev $boost libjpeg-dev libpng-dev libwebp-dev libgif-dev
  libsndfile1-dev libsamplerate0-dev libgtest-dev libgmock-dev"

[ ! -f "$root/complete" ] || exit 0
for program in apt-get dpkg-deb; do
  command -v $program >/dev/null || { echo "sysroot: $program is missing: it comes with Debian and Ubuntu" >&2; exit 1; }
done
rm -rf "$root"
mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial"
root=$(cd "$root" && pwd)
echo "sysroot: unpacking $architecture packages to $root"
: >"$root/apt/status"
# apt with the machine's package sources and a separate state.
apt() {
  apt-get -q -y -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o Acquire::Retries=3 \
    -o APT::Sandbox::User= -o Dir::State="$root/apt" -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt" \
    "$@" >>"$root/apt/log" 2>&1
}
apt update || true  # a source without this architecture does not matter
# shellcheck disable=SC2086 (one argument a package)
if ! apt install --download-only --no-install-recommends $packages; then
  tail -20 "$root/apt/log" >&2
  echo "sysroot: apt-get could not fetch the $architecture packages" >&2
  exit 1
fi
for package in "$root"/apt/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
# Absolute links point to the machine's own folders. Make them point into this folder.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -sfn "$root$(readlink "$link")" "$link"
done
rm -rf "$root/apt"
touch "$root/complete"
