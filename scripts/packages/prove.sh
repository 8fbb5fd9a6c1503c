#!/bin/sh
# Installs and runs the packages in new roots of Debian that have nothing else:
# scripts/packages/prove.sh OUT [SUITE...], as root. OUT is what scripts/packages/make.sh wrote; suites are bookworm, trixie and sid if none is named, or Ubuntu's
# with MIRROR=. Each root is made once, by debootstrap, and unpacked anew for each run.
set -eu
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bookworm trixie sid
roots=build-package/roots
mkdir -p $roots
: "${MIRROR:=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1)}"

inside='
set -eu
say() { echo "  $*"; }
cd /tmp
export DEBIAN_FRONTEND=noninteractive HOME=/tmp
begin=$(date +%s)
apt-get -q -q -o Acquire::Check-Valid-Until=false update  # a mirror may be a snapshot
apt-get -q -q -y install ./ingot_*.deb >install.log 2>&1 || { cat install.log; exit 1; }
say "installed in $(($(date +%s) - begin)) s: $(ingot --version)"
begin=$(date +%s%N)
[ -n "$(ingot run -p "Tell me a story." -n 20)" ]
say "the first text, whole, after $((($(date +%s%N) - begin) / 1000000)) ms"
ingot doctor | sed "s/^/  /"
for file in include/ingot/ingot.h share/man/man1/ingot.1.gz share/man/man1/ingot.1 lib/systemd/system/ingot.service \
  share/bash-completion/completions/ingot share/doc/ingot/LICENSE share/doc/ingot/licenses/libpcre2-dev.txt; do
  [ -e /usr/$file ] || case $file in
    share/man/* | share/doc/*) say "left out by this root: $file" ;;
    *) echo "missing: $file"; exit 1 ;;
  esac
done
[ -n "$(ldconfig -p | grep "libingot.so.0 ")" ] || { echo "ldconfig does not know libingot.so.0"; exit 1; }
ingot serve --port 8099 >serve.log 2>&1 & server=$!
ready() {
  (exec 3<>/dev/tcp/127.0.0.1/8099 && printf "GET /health HTTP/1.0\r\n\r\n" >&3 &&
    head -1 <&3 | grep -q " 200 ") 2>/dev/null
}
i=0
until ready; do i=$((i + 1)); [ $i -lt 300 ] || { cat serve.log; exit 1; }; sleep 0.1; done
say "the server answers /health"
kill $server && wait $server || true
apt-get -q -q -y remove ingot >remove.log 2>&1
[ ! -e /usr/bin/ingot ] && [ ! -e /usr/include/ingot ]
say "removed"
mkdir tarball && tar -C tarball --strip-components=1 -xzf ingot-*-linux-*.tar.gz
[ -n "$(tarball/bin/ingot run -p "Tell me a story." -n 20)" ]
say "the tarball runs"
[ -z "$(ldd tarball/bin/ingot tarball/lib/libingot.so.0 | grep "not found")" ]
say "nothing is missing for the tarball"
[ -n "$(ls ingot-*.whl 2>/dev/null)" ] || exit 0
apt-get -q -q -y install --no-install-recommends ca-certificates python3-venv >venv.log 2>&1 ||
  { say "no python3-venv, so no wheel"; exit 0; }
cat host.crt >>/etc/ssl/certs/ca-certificates.crt
python3 -m venv venv
begin=$(date +%s)
venv/bin/pip -q install ./ingot-*.whl
say "the wheel is installed in $(($(date +%s) - begin)) s for $(python3 --version)"
[ -n "$(venv/bin/ingot run -p hi -n 5)" ]
venv/bin/python -c "import ingot; assert ingot.Model.load().chat(\"hi\", max_tokens=5).text"
venv/bin/ingot doctor --json | grep -A1 libcurl | grep -q good
say "the wheel runs: program, library, its own libcurl"
'

for suite in "$@"; do
  root=$roots/$suite
  if [ ! -f "$root.tar" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase "$suite" "$root" "$MIRROR" >"$root.log"
    tar -C "$root" -cf "$root.tar" .
  fi
  rm -rf "$root"
  mkdir "$root"
  tar -C "$root" -xf "$root.tar"
  cp "$out"/ingot_*.deb "$out"/ingot-*-linux-*.tar.gz "$root/tmp"
  for wheel in "$out"/ingot-*.whl; do [ ! -f "$wheel" ] || cp "$wheel" "$root/tmp"; done
  cp /etc/ssl/certs/ca-certificates.crt "$root/tmp/host.crt"  # with the authorities that this machine trusts
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo "$suite:"
  unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" /bin/bash -c "$1"' "$root" "$inside"
  rm -rf "$root"
done
