#!/usr/bin/env bash
# The core for 64-bit ARM: cross-compiled with the `ziglang` package and run under qemu, with dot products and without;
# its outputs must be those of this machine.   csrc/tests/neon.sh     (needs qemu-aarch64, Debian's qemu-user)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
core=$root/csrc
"$python" -m pip install --quiet --target "$work/zig" ziglang
PYTHONPATH=$work/zig "$python" -m ziglang c++ -target aarch64-linux-musl -std=c++17 -O3 -static -I"$core" "$core"/*.cpp "$here/drive.cpp" -o "$work/arm"
"${CXX:-g++}" -std=c++17 -O3 -w -I"$core" "$core"/*.cpp "$here/drive.cpp" -o "$work/here"
"$python" "$here/make_models.py" "$work/models"
for model in plain dense after recurrent int4 classifier; do
  "$work/here" "$work/models/$model" plain > "$work/expected"
  for kernels in plain neon neon-dot neon-i8mm; do
    cpu=$([[ $kernels = neon-* ]] && echo max || echo cortex-a53)   # the latter has no dot products
    qemu-aarch64 -cpu $cpu "$work/arm" "$work/models/$model" $kernels > "$work/found" || { cat "$work/found"; exit 1; }
    same=$(diff <(sed 's/ [^ ]*$//' "$work/expected") <(sed 's/ [^ ]*$//' "$work/found") | grep -c '^>' || true)
    echo "$model with $kernels: $(wc -l < "$work/found") outputs, $same differ"
    [ "$same" -le $(( $(wc -l < "$work/found") / 20 )) ] || exit 1   # a tie may fall the other way
  done
done
