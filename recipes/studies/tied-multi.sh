#!/usr/bin/env bash
# What do all depths in one model cost, and what do distillation, recurrent stacking and a selector give back?
# (Dabre, Rubino and Fujita 2020, Tables 1 to 4, Figure 2)
#   recipes/studies/tied-multi.sh DATA OUT [PART ...]
# DATA as made by `anydepth data tatoeba-en-fr DATA`. `anydepth` must be on the path. Every run is resumable; what is
# finished is not done again. Parts, in this order by default; about an hour and a half together on two cores:
#   vanilla    a teacher of 6-6 and plain models of 1-1, 2-2 and 6-2                                   Table 1
#   tied       tied-multi, sampled and exact at about equal time                                       Table 1
#   distilled  tied-multi on the teacher's translations                                                Table 3
#   recurrent  one layer applied up to six times, with and without distillation                        Tables 3, 4
#   measure    the grids of all of them, greedy and with beam 4, and the oracle                        Tables 1, 3, Figure 2
#   selector   calibration, and a selector for the tied model, with its trade-off curve                Table 2
#
# The text is split by source sentence: four eighths train the models, one eighth is for the selector, which thus learns
# from sentences that the models have not seen; three eighths are not used, so that distilling takes minutes. All models
# take the same 2,400 updates but tied-multi exact, which takes as many as fit into the same time (EXACT_STEPS).
set -euo pipefail
parts=(vanilla tied distilled recurrent measure selector)
[[ $# -ge 2 ]] || { echo "usage: $0 DATA OUT [PART ...], parts: ${parts[*]}" >&2 && exit 2; }
data=$1 out=$2
shift 2
for part in "$@"; do
  [[ " ${parts[*]} " == *" $part "* ]] || { echo "there is no part $part: choose from ${parts[*]}" >&2 && exit 2; }
done
command -v anydepth > /dev/null || { echo "anydepth is not on the path: . .venv/bin/activate" >&2 && exit 2; }

recipe=$(dirname "$0")/tied-multi.yaml
if [[ ! -e $out/data/done ]]; then
  mkdir -p "$out/data"
  paste "$data/train.fr" "$data/train.en" | awk -F '\t' -v out="$out/data" '
    !($1 in part) { part[$1] = sources++ % 8 }
    part[$1] == 0 { print $1 > (out "/selector.fr"); print $2 > (out "/selector.en") }
    part[$1] >= 1 && part[$1] <= 4 { print $1 > (out "/train.fr"); print $2 > (out "/train.en") }'
  touch "$out/data/done"
fi
references="{source: $out/data/train.fr, target: $out/data/train.en}"
translations="{source: $out/distilled/distilled.fr, target: $out/distilled/distilled.en}"
test=(--source "$data/test.fr" --reference "$data/test.en" --batch-size 100)
recurrent=(--set model.encoder_shared=all --set model.decoder_shared=all)

run() { # NAME CORPUS OPTIONS...
  local name=$1 corpus=$2
  shift 2
  echo "== $name =="
  anydepth train "$recipe" --out "$out/$name" --set "data.train=$corpus" \
    --set "data.valid={source: $data/valid.fr, target: $data/valid.en}" "$@"
}
teacher() { run vanilla/6-6 "$references"; }
tied() { # NAME CORPUS MODE OPTIONS...
  local name=$1 corpus=$2 mode=$3
  shift 3
  run "$name" "$corpus" --set "data.tokenizer=$out/vanilla/6-6" --set 'train.valid_depths=[6-6, 1-1]' \
    --set "objective={name: tied-multi, mode: $mode}" "$@"
}
translated() {
  teacher
  anydepth distill "$out/vanilla/6-6" --source "$out/data/train.fr" --out "$out/distilled" --beam 4 --length-penalty 1
}

part_vanilla() {
  teacher
  for depth in 1-1 2-2 6-2; do
    run "vanilla/$depth" "$references" --set "data.tokenizer=$out/vanilla/6-6" \
      --set "model.encoder_layers=${depth%-*}" --set "model.decoder_layers=${depth#*-}"
  done
}
part_tied() {
  teacher
  tied tied "$references" sampled
  tied tied-exact "$references" exact --set "train.steps=${EXACT_STEPS:-600}"
}
part_distilled() {
  translated
  tied tied-kd "$translations" sampled
}
part_recurrent() {
  translated
  tied recurrent "$references" sampled "${recurrent[@]}"
  tied recurrent-kd "$translations" sampled "${recurrent[@]}"
}
part_measure() {
  local vanilla
  vanilla=$(ls -d "$out"/vanilla/*-*)
  vanilla=vanilla=${vanilla//$'\n'/,}
  models=("$out"/{tied,tied-exact,tied-kd,recurrent,recurrent-kd} "$vanilla")
  anydepth sweep "${models[@]}" "${test[@]}" --out "$out/report-greedy"
  anydepth sweep "${models[@]}" "${test[@]}" --beam 4 --depths 6-6,5-6,2-2,1-1 --no-record --out "$out/report-beam-4"
  anydepth oracle "$out/tied" "$out/tied-kd" "$vanilla" "${test[@]}" --out "$out/report-oracle"
}
part_selector() {
  anydepth calibrate "$out/tied" --source "$data/valid.fr" --reference "$data/valid.en"
  anydepth select "$out/tied" --source "$out/data/selector.fr" --reference "$out/data/selector.en" \
    --dev-source "$data/valid.fr" --dev-reference "$data/valid.en" --out "$out/report-selector"
}

for part in "${@:-${parts[@]}}"; do "part_$part"; done
