#!/bin/sh
# Writes the zip and the installer for Windows, cross-compiled: scripts/packages/windows.sh OUT VERSION. The caller sets
# SOURCE_DATE_EPOCH.
set -eu
out=$1
name=ingot-$2-windows-x86_64
scripts/windows_libraries.sh build-windows/libraries
cmake --preset windows -DINGOT_TESTS=OFF >build-windows/configure.log
cmake --build build-windows --target ingot-cli
folder=build-windows/package/$name
rm -rf build-windows/package
mkdir -p "$folder/licenses"
x86_64-w64-mingw32-strip -o "$folder/ingot.exe" build-windows/ingot.exe
for file in LICENSE NOTICE; do sed 's/$/\r/' $file >"$folder/$file.txt"; done
# The libraries of scripts/windows_libraries.sh, and the C and C++ libraries of the compiler.
for package in libfmt-dev libpcre2-dev libutf8proc-dev libcurl4-openssl-dev libssl-dev nlohmann-json3-dev \
  libcli11-dev libboost1.81-dev mingw-w64-x86-64-dev g++-mingw-w64-x86-64-posix; do
  cp /usr/share/doc/$package/copyright "$folder/licenses/$package.txt"
done
find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
find "$folder" -type f -exec chmod 644 {} +
rm -f "$out/$name.zip" "$out/$name-setup.exe"
(cd build-windows/package && find "$name" -type f | sort | zip -q -X -9 -@ "$out/$name.zip")
makensis -V2 -DVERSION="$2" -DFOLDER="$PWD/$folder" -DOUT="$out/$name-setup.exe" deploy/windows/ingot.nsi
