#!/usr/bin/env bash
# Builds anydepth-run and the library for other systems with the `ziglang` package, and prints their sizes.
#   csrc/cross.sh [FOLDER] [TARGET...]      (build/cross; Windows on x86-64, macOS and Linux on ARM)
# ZIG is the command of a zig that is there already, such as "python -m ziglang".
set -euo pipefail
core=$(cd "$(dirname "$0")" && pwd)
out=${1:-$core/../build/cross}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(x86_64-windows-gnu aarch64-macos aarch64-linux-musl)
python=${PYTHON:-python3}
if [ -z "${ZIG:-}" ]; then
  "$python" -c 'import ziglang' 2> /dev/null || { echo "install zig first: pip install ziglang" >&2; exit 2; }
  ZIG="$python -m ziglang"
fi
for target in "${targets[@]}"; do
  libraries=()
  case $target in
    *windows*) program=anydepth-run.exe library=anydepth.dll libraries=(-lshell32) ;;
    *macos*) program=anydepth-run library=libanydepth.dylib ;;
    *) program=anydepth-run library=libanydepth.so ;;
  esac
  mkdir -p "$out/$target"
  flags=(-target "$target" -std=c++17 -O3 -fPIC -fvisibility=hidden -Wall -Wextra -I"$core")
  objects=()
  for source in "$core"/*.cpp "$core/program/anydepth_run.cpp"; do
    objects+=("$out/$target/$(basename "$source" .cpp).o")
    $ZIG c++ "${flags[@]}" -c "$source" -o "${objects[-1]}"
  done
  $ZIG c++ -target "$target" -s "${objects[@]}" "${libraries[@]}" -o "$out/$target/$program"
  $ZIG c++ -target "$target" -s -shared "${objects[@]:0:${#objects[@]}-1}" -o "$out/$target/$library"
  rm "${objects[@]}"
  for file in "$program" "$library"; do
    printf '%-20s %-18s %6d KB\n' "$target" "$file" $(( $(wc -c < "$out/$target/$file") / 1000 ))
  done
done
