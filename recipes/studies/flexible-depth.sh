#!/usr/bin/env bash
# Does one model with all depths match models trained one by one, and LayerDrop? (Wang, Xiao and Zhu 2021, Tables 1 to 5)
#   recipes/studies/flexible-depth.sh DATA OUT [PART ...]
# DATA has train, val and test_2016_flickr .en and .de of Multi30k (github.com/multi30k/dataset, data/task1/raw).
# Parts, each resumable; `main` alone takes about an hour on two cores:
#   main        pre-train 12-6, distil; flexible (Optimal and Left), LayerDrop at equal cost, individual models   Table 1
#   no-kd       the same methods on the references instead of the distilled text                                 Table 2
#   strategies  the other three ways to assign layers                                                            Table 3
#   sides       encoder or decoder only                                                                          Table 4
#   sampling    all 24 tasks, 12, or 6 per update at about equal cost                                            Table 5
#   drop-rates  LayerDrop at several p                                                                           Figure 1
#   forced      the pre-trained model at depths it has never seen                                                footnote 1
# Every part ends in a sweep with a report in OUT/report-PART. The tables are in docs/results.md.
set -euo pipefail
data=$1 out=$2
shift 2
recipe=$(dirname "$0")/flexible-depth.yaml
test=(--source "$data/test_2016_flickr.en" --reference "$data/test_2016_flickr.de" --batch-size 100)
divisors=$(for n in 1 2 3 4 6 12; do for m in 1 2 3 6; do echo -n "$n-$m,"; done; done)
divisors=${divisors%,}
real="{source: $data/train.en, target: $data/train.de}"
distilled="{source: $out/distilled/distilled.en, target: $out/distilled/distilled.de}"

run() { # NAME CORPUS OPTIONS...
  local name=$1 corpus=$2
  shift 2
  echo "== $name =="
  anydepth train "$recipe" --out "$out/$name" --set "data.train=$corpus" \
    --set "data.valid={source: $data/val.en, target: $data/val.de}" "$@"
}

# From the pre-trained weights, 1,000 updates of 6 tasks (each encoder depth with one decoder depth) or of 6 batches.
from_pretrained=(--set "init_from=$out/pretrained" --set train.rate=2.0e-3 --set train.warmup=100)
flexible() { # NAME CORPUS UPDATES OBJECTIVE-KEYS
  run "$1" "$2" "${from_pretrained[@]}" --set "train.steps=$3" --set "objective={name: flexible, $4}"
}
layerdrop() { # NAME CORPUS P
  run "$1" "$2" "${from_pretrained[@]}" --set train.steps=1000 --set train.accumulate=6 \
    --set "objective={name: layerdrop, encoder_p: $3, decoder_p: $3}"
}
individual() { # NAME CORPUS DEPTH...
  local name=$1 corpus=$2
  shift 2
  for depth in "$@"; do
    run "$name/$depth" "$corpus" --set "data.tokenizer=$out/pretrained" \
      --set "model.encoder_layers=${depth%-*}" --set "model.decoder_layers=${depth#*-}"
  done
}
members() { # NAME: its models as one family
  local found
  found=$(ls -d "$out/$1"/*-*)
  echo "$1=${found//$'\n'/,}"
}
pretrain_and_distil() {
  run pretrained "$real"
  anydepth distill "$out/pretrained" --source "$data/train.en" --out "$out/distilled" --beam 4 --length-penalty 1.5
}

main() {
  flexible optimal "$distilled" 1000 "strategy: optimal, decoder_tasks: 1"
  layerdrop layerdrop "$distilled" 0.5
  individual individual "$distilled" 1-1 2-2 4-3
  flexible left "$distilled" 1000 "strategy: left, decoder_tasks: 1"
  individual individual "$distilled" 12-6
  anydepth sweep "$out"/{optimal,left,layerdrop} "$(members individual)" "${test[@]}" --depths "$divisors" \
    --out "$out/report-main"
}
no-kd() {
  flexible optimal-no-kd "$real" 1000 "strategy: optimal, decoder_tasks: 1"
  layerdrop layerdrop-no-kd "$real" 0.5
  individual individual-no-kd "$real" 1-1 2-2 4-3
  anydepth sweep "$out/optimal" "$out/optimal-no-kd" "$out/layerdrop" "$out/layerdrop-no-kd" \
    "$(members individual)" "$(members individual-no-kd)" "${test[@]}" --depths "$divisors" --out "$out/report-no-kd"
}
strategies() {
  for strategy in head seq middle-left; do
    flexible "$strategy" "$distilled" 1000 "strategy: $strategy, decoder_tasks: 1"
  done
  anydepth sweep "$out"/{optimal,head,seq,left,middle-left} "${test[@]}" --out "$out/report-strategies"
}
sides() {
  flexible encoder-only "$distilled" 1000 "strategy: optimal, sides: encoder"
  flexible decoder-only "$distilled" 1000 "strategy: optimal, sides: decoder"
  anydepth sweep "$out"/{optimal,encoder-only,decoder-only} "${test[@]}" --out "$out/report-sides"
}
sampling() {
  flexible tasks-24 "$distilled" 360 "strategy: optimal"
  flexible tasks-12 "$distilled" 630 "strategy: optimal, decoder_tasks: 2"
  anydepth sweep "$out"/{optimal,tasks-12,tasks-24} "${test[@]}" --out "$out/report-sampling"
}
drop-rates() {
  layerdrop layerdrop-0.2 "$distilled" 0.2
  anydepth sweep "$out/layerdrop" "$out/layerdrop-0.2" "${test[@]}" --depths "$divisors" --out "$out/report-drop-rates"
}
forced() {
  anydepth sweep "$out/pretrained" "${test[@]}" --force left --out "$out/report-forced"
}

pretrain_and_distil
for part in "${@:-main}"; do
  case $part in
    main | no-kd | strategies | sides | sampling | drop-rates | forced) "$part" ;;
    *) echo "there is no part $part" >&2 && exit 2 ;;
  esac
done
