#!/usr/bin/env bash
# How should tied-multi weigh its exits? The demo's model and data, one run per rule, then one sweep over all of them.
#   recipes/studies/exit-weights.sh DATA OUT [STEPS]      DATA as made by `anydepth data tatoeba-en-fr DATA`
# About five minutes per run of 1,500 steps on two cores. The table is in docs/results.md.
set -euo pipefail
data=$1 out=$2 steps=${3:-1500}
run() {
  local name=$1
  shift
  anydepth train recipes/quickstart.yaml --out "$out/$name" \
    --set "data.train={source: $data/train.fr, target: $data/train.en}" \
    --set "data.valid={source: $data/valid.fr, target: $data/valid.en}" \
    --set "train.steps=$steps" --set train.optimizer=adam "$@"
}
run vanilla --set 'objective={name: vanilla}' --set 'train.valid_depths=[]'
run uniform --set 'objective={name: tied-multi, weights: uniform}'
run linear --set 'objective={name: tied-multi, weights: linear}'
run deepest-0.5 --set 'objective={name: tied-multi, weights: deepest, deepest_share: 0.5}'
anydepth sweep "$out"/uniform "$out"/linear "$out"/deepest-0.5 "$out"/vanilla \
  --source "$data/test.fr" --reference "$data/test.en" --out "$out/report"
