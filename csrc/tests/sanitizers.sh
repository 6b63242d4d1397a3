#!/usr/bin/env bash
# The core under the address and undefined-behaviour sanitizers: unit tests, every kind of model, every kernel that runs
# here, mutated and truncated files. A short form of it is tests/engines/test_core.py.
#   csrc/tests/sanitizers.sh [MUTATIONS] [64|32]     (5000 of each kind of model; needs CMake and g++ or clang++)
# 32 builds it for 32-bit x86, where sizes overflow as they do in WebAssembly (Debian's g++-multilib).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S "$root/csrc" -B "$work/build" -DANYDEPTH_SANITIZE=ON -DANYDEPTH_32BIT="$([ "${2:-64}" = 32 ] && echo ON || echo OFF)" \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 > "$work/log"
cmake --build "$work/build" --parallel "$(nproc)" > "$work/log" || { cat "$work/log"; exit 1; }
"$work/build/unit"
"$python" "$here/make_models.py" "$work/models"
"$python" "$here/make_models.py" "$work/tiny" --tiny
for model in plain dense after recurrent int4 classifier; do
  for kernels in plain avx2 avx-vnni avx512-vnni neon neon-dot; do
    "$work/build/drive" "$work/models/$model" $kernels > "$work/$model.$kernels" || {
      grep -q 'does not have these instructions' "$work/$model.$kernels" && continue
      cat "$work/$model.$kernels"; exit 1
    }
    echo "$model with $kernels: $(wc -l < "$work/$model.$kernels") outputs"
  done
  echo "$model: $("$work/build/mutate" "$work/tiny/$model" "${1:-5000}")"
done
