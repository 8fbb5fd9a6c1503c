#!/bin/bash
# Installs, runs and removes the packages for Windows under Wine, in a new prefix:
# scripts/packages/prove_windows.sh OUT. OUT is what scripts/packages/make.sh wrote.
set -euo pipefail
out=$(cd "$1" && pwd)
work=$(mktemp -d)
export WINEPREFIX=$work/prefix WINEDEBUG=-all WINEDLLOVERRIDES=mscoree,mshtml=
trap 'wineserver -k 2>/dev/null || true; rm -rf "$work"' EXIT
say() { echo "  $*"; }
fail() { echo "prove_windows: $*" >&2; exit 1; }
wineboot -i >/dev/null 2>&1

path_of_user() { wine reg query 'HKCU\Environment' /v Path 2>/dev/null | tr -d '\r' | sed -n 's/.*REG_[A-Z_]*  *//p'; }

echo "the zip:"
unzip -q "$out"/ingot-*-windows-x86_64.zip -d "$work/zip"
program=$(echo "$work"/zip/*/ingot.exe)
say "$(wine "$program" --version | tr -d '\r')"
[ -n "$(wine "$program" run -p 'Tell me a story.' -n 20 2>/dev/null)" ] || fail "no text"
say "writes a text"

echo "the installer:"
wine reg add 'HKCU\Environment' /v Path /t REG_EXPAND_SZ /d 'C:\other' /f >/dev/null
before=$(path_of_user)
wine "$out"/ingot-*-windows-x86_64-setup.exe /S
folder=$(find "$WINEPREFIX/drive_c/users" -type d -path '*AppData/Local/Programs/ingot' | head -1)
[ -f "$folder/ingot.exe" ] && [ -f "$folder/licenses/libpcre2-dev.txt" ] || fail "the installer left no program"
case $(path_of_user) in
  'C:\other;'*'\Programs\ingot') say "installed, and in the user's PATH" ;;
  *) fail "PATH is $(path_of_user)" ;;
esac
wine "$out"/ingot-*-windows-x86_64-setup.exe /S
[ "$(path_of_user | grep -o 'Programs' | wc -l)" = 1 ] ||
  fail "a second installation makes the PATH longer: $(path_of_user)"
say "installed again, with the same PATH"
[ -n "$(wine "$folder/ingot.exe" run -p 'Tell me a story.' -n 20 2>/dev/null)" ] || fail "no text"
say "writes a text"
wine "$folder/ingot.exe" serve --port 8097 >"$work/serve.log" 2>&1 &
server=$!
ready() {
  (exec 3<>/dev/tcp/127.0.0.1/8097 && printf 'GET /health HTTP/1.0\r\n\r\n' >&3 &&
    head -1 <&3 | grep -q ' 200 ') 2>/dev/null
}
for _ in $(seq 600); do ready && break; sleep 0.2; done
ready || { cat "$work/serve.log" >&2; fail "the server does not answer"; }
say "serves"
kill $server
wait $server 2>/dev/null || true
wineserver -k 2>/dev/null || true
wine "$folder/uninstall.exe" /S
for _ in $(seq 100); do [ -e "$folder" ] || break; sleep 0.2; done
[ ! -e "$folder" ] || fail "the uninstaller left $(ls "$folder")"
[ "$(path_of_user)" = "$before" ] || fail "after uninstalling, PATH is $(path_of_user)"
wine reg query 'HKCU\Software\Microsoft\Windows\CurrentVersion\Uninstall\ingot' >/dev/null 2>&1 &&
  fail "the registry still lists ingot"
say "uninstalled: no file, no entry, the old PATH"

wine reg add 'HKCU\Environment' /v Path /t REG_EXPAND_SZ /d "$(seq -s ';' -f 'C:\folder%g' 150)" /f >/dev/null
before=$(path_of_user)
wine "$out"/ingot-*-windows-x86_64-setup.exe /S
wine "$folder/uninstall.exe" /S
for _ in $(seq 100); do [ -e "$folder" ] || break; sleep 0.2; done
[ "$(path_of_user)" = "$before" ] || fail "a long PATH was changed"
say "a PATH of ${#before} characters stays as it is"
