#!/bin/sh
# Installs the packages that a build needs and this machine lacks: scripts/setup.sh [build] [test] [bench] [fuzz] [arm]
# [windows] [package], each a group of Debian packages. The Makefile calls this script before every target, so it
# returns at once if no package is missing. As root it installs quietly; for other users it prints the command that
# installs the packages. On a machine without apt it does nothing, and CMake reports missing packages.
set -eu

# Boost must be 1.81 or newer. Debian 12 has Boost 1.81 in a separate package, because its libboost-dev is older. Later
# systems have only libboost-dev.
boost=libboost-dev
if grep -qs '^VERSION_CODENAME=bookworm' "${OS_RELEASE:-/etc/os-release}"; then boost=libboost1.81-dev; fi

# program:package for programs that may be installed in other ways (a newer compiler, for example); plain packages for
# libraries. Optional packages are installed only together with missing ones, if apt has them: ccache, a browser for the
# tests of the pages, systemd's checker for the unit.
build="g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config
  libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev libedit-dev
  libcurl4-openssl-dev libssl-dev $boost libjpeg-dev libpng-dev libwebp-dev libgif-dev
  libsndfile1-dev libsamplerate0-dev ca-certificates"
test="libgtest-dev libgmock-dev python3:python3 python3-numpy python3-pytest python3-venv
  libopenmpi-dev mpirun:openmpi-bin haproxy:haproxy python3-zmq python3-msgpack"
bench="libbenchmark-dev"
fuzz="clang++:clang llvm-symbolizer:llvm libclang-rt-dev"
arm="aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static"
windows="x86_64-w64-mingw32-g++-posix:g++-mingw-w64-x86-64-posix wine:wine dpkg-source:dpkg-dev make:make perl:perl
  makensis:nsis zip:zip"
package="rpmbuild:rpm dpkg-shlibdeps:dpkg-dev"
helpful="ccache:ccache"

wanted="$build"
for group in "$@"; do
  case $group in
    build) ;;
    test) wanted="$wanted $test"; helpful="$helpful systemd-analyze:systemd zsh:zsh fish:fish man:man-db chromium|chromium-headless-shell:chromium-headless-shell" ;;
    bench) wanted="$wanted $bench" ;;
    fuzz) wanted="$wanted $fuzz" ;;
    arm) wanted="$wanted $arm" ;;
    windows) wanted="$wanted $windows" ;;
    package) wanted="$wanted $package" ;;
    *) echo "setup: no group '$group': build, test, bench, fuzz, arm, windows and package are known" >&2; exit 2 ;;
  esac
done

command -v apt-get >/dev/null || exit 0

missing=""
libraries=""
for item in $wanted; do
  case $item in
    *:*) command -v "${item%%:*}" >/dev/null || missing="$missing ${item##*:}" ;;
    *) libraries="$libraries $item" ;;
  esac
done
installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' $libraries 2>/dev/null || true)"
for package in $libraries; do
  case $installed in
    *" installed:$package "*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0
helping=""
for item in $helpful; do
  has=""
  for program in $(echo "${item%%:*}" | tr '|' ' '); do command -v "$program" >/dev/null && has=yes; done
  [ -n "$has" ] || helping="$helping ${item##*:}"
done

if [ "$(id -u)" -ne 0 ]; then
  echo "setup: these packages are missing; install them and run make again:" >&2
  echo "  sudo apt-get install --no-install-recommends$missing$helping" >&2
  exit 1
fi

echo "setup: installing$missing$helping"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >>"$log" 2>&1 </dev/null; }
apt update || true
known=""
for package in $helping; do apt-cache show "$package" >/dev/null 2>&1 && known="$known $package"; done
# A failure of the optional packages must not stop the installation.
if ! apt install --no-install-recommends $missing $known && ! apt install --no-install-recommends $missing; then
  cat "$log" >&2
  echo "setup: apt-get could not install$missing" >&2
  exit 1
fi
