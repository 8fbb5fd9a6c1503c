#!/bin/sh
# Builds static versions of the libraries that a Windows build needs: scripts/windows_libraries.sh FOLDER. Debian has no
# MinGW packages of these libraries, but it has their sources with security patches. Header-only libraries come from
# this machine's own packages. A complete folder is not changed.
set -eu

prefix=$1
host=x86_64-w64-mingw32
jobs=${JOBS:-$(nproc)}

[ ! -f "$prefix/complete" ] || exit 0
for program in apt-get dpkg-source $host-g++-posix cmake make perl; do
  command -v $program >/dev/null && continue
  echo "windows_libraries: $program is missing; install it and run this again:" >&2
  echo "  sudo apt-get install --no-install-recommends dpkg-dev g++-mingw-w64-x86-64-posix cmake make perl" >&2
  exit 1
done
mkdir -p "$prefix/source/apt/lists/partial" "$prefix/include" "$prefix/share/cmake"
prefix=$(cd "$prefix" && pwd)
cd "$prefix/source"
log=$prefix/source/log
run() { "$@" >>"$log" 2>&1 </dev/null || { tail -20 "$log" >&2; echo "windows_libraries: failed: $*" >&2; exit 1; }; }

echo "windows_libraries: fetching Debian's sources"
: >apt/status
mkdir -p apt/sources.list.d  # the machine's own sources, asked for source packages
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  [ ! -f "$list" ] || sed 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$list" >"apt/sources.list.d/$(basename "$list")"
done
apt="apt-get -q -o APT::Sandbox::User= -o Acquire::Retries=3 -o Dir::Etc=$PWD/apt -o Dir::State=$PWD/apt
  -o Dir::State::status=$PWD/apt/status -o Dir::Cache=$PWD/apt"
$apt update >>"$log" 2>&1 || true  # a source that does not answer does not matter
# A mirror may lack the sources of a security update. Then the release's own version is used.
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
for name in fmtlib pcre2 utf8proc openssl curl googletest; do
  $apt source "$name" >>"$log" 2>&1 </dev/null || run $apt source "$name/$release"
done

# build NAME OPTION...: builds a CMake project.
build() {
  name=$1
  shift
  echo "windows_libraries: building $name"
  cd "$(echo "$prefix/source/$name"-[0-9]*/)"
  run cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_C_COMPILER=$host-gcc-posix \
    -DCMAKE_CXX_COMPILER=$host-g++-posix -DCMAKE_RC_COMPILER=$host-windres -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_FIND_ROOT_PATH="$prefix" -DBUILD_SHARED_LIBS=OFF -DCMAKE_C_FLAGS="-D_WIN32_WINNT=0x0A00" "$@"
  run cmake --build build -j "$jobs"
  run cmake --install build
}
build fmtlib -DFMT_TEST=OFF -DFMT_DOC=OFF
build utf8proc
build pcre2 -DPCRE2_SUPPORT_JIT=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_SUPPORT_LIBREADLINE=OFF
build googletest
# With Schannel, certificates are checked against those that Windows trusts.
build curl -DCURL_USE_SCHANNEL=ON -DBUILD_CURL_EXE=OFF -DHTTP_ONLY=ON -DBUILD_TESTING=OFF -DCURL_ZLIB=OFF -DCURL_USE_LIBSSH2=OFF
echo "windows_libraries: building openssl"
cd "$(echo "$prefix"/source/openssl-[0-9]*/)"
# Without no-autoload-config, the program would load settings from a folder that any user of Windows can create: that of
# this build, at the root of the current drive.
run ./Configure mingw64 --cross-compile-prefix=$host- --prefix=/ingot --libdir=lib no-shared no-tests no-dso no-legacy no-autoload-config
run make -j "$jobs" build_libs
run make install_dev DESTDIR="$PWD/installed"
cp -r installed/ingot/. "$prefix/"
sed -i "s|^prefix=.*|prefix=$prefix|" "$prefix"/lib/pkgconfig/*ssl*.pc "$prefix"/lib/pkgconfig/libcrypto.pc

for package in boost nlohmann CLI; do ln -sfn "/usr/include/$package" "$prefix/include/$package"; done
for config in /usr/share/cmake/nlohmann_json /usr/share/cmake/CLI11 /usr/lib/cmake/CLI11; do
  [ ! -d "$config" ] || cp -r "$config" "$prefix/share/cmake/"
done
cd "$prefix"
rm -rf source
touch complete
