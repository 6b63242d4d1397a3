#!/usr/bin/env bash
# Do gates let a deep decoder train, and do they say which of its layers to keep?
# (Li, Stickland, Tang and Kong 2020, Tables 1 to 9, Figures 2 to 8)
#   recipes/studies/latent-depth.sh DATA OUT [PART ...]
# DATA has train, val and test_2016_flickr .de, .en, .fr and .cs of Multi30k (github.com/multi30k/dataset, data/task1/raw).
# `anydepth` must be on the path. Every run is resumable; what is finished is not done again; what diverged is reported.
# Parts, the first four by default (an hour and a half on two cores; JOBS=2 trains two models side by side):
#   deep    a decoder of 100 layers, latent and static, 300 updates
#   main    6-24: static, latent, latent with K = 12 (also with straight-through samples, and with gates that settle early),
#           static 6-12; at twice the rate; LayerDrop, ReZero, DLCL
#   priors  English to French and Czech, 6-24: a uniform against the aggregated prior; static 6-12
#   mlm     an encoder of 24 layers alone, masked language modelling: static, latent
#   beta    what the KL counts: 0, 1, 10                                                        Table 6
#   terms   without the distance from K, without the KL, without both                           Table 7
#   inner   updates of the weights for each of the gates: 1, 2, 5, 10                           Table 9
#   wide    a wide shallow model with as many parameters
#   sides   gates on the encoder, on both sides; layers without norm
set -euo pipefail
parts=(deep main priors mlm beta terms inner wide sides)
[[ $# -ge 2 ]] || { echo "usage: $0 DATA OUT [PART ...], parts: ${parts[*]}" >&2 && exit 2; }
data=$1 out=$2 jobs=${JOBS:-2}
shift 2
for part in "$@"; do
  [[ " ${parts[*]} " == *" $part "* ]] || { echo "there is no part $part: choose from ${parts[*]}" >&2 && exit 2; }
done
for file in {train,val,test_2016_flickr}.{de,en,fr,cs}; do
  [[ -f $data/$file ]] || { echo "there is no $data/$file: DATA is data/task1/raw of Multi30k" >&2 && exit 2; }
done
command -v anydepth > /dev/null || { echo "anydepth is not on the path: . .venv/bin/activate" >&2 && exit 2; }

recipe=$(dirname "$0")/latent-depth.yaml
schedule="tau: 2.0, tau_steps: 1200, anneal_from: 100, anneal_steps: 400, gate_rate: 0.05"
latent="name: latent, sides: decoder, $schedule"
sooner="tau: 2.0, tau_steps: 800, anneal_from: 100, anneal_steps: 300, gate_rate: 0.05" # for 1,000 updates
pair="data.train={source: $data/train.de, target: $data/train.en}"
valid="data.valid={source: $data/val.de, target: $data/val.en}"

failed=$out/logs/failed.txt
mkdir -p "$out/logs"
rm -f "$failed"
run() { # NAME OPTIONS...: waits for its turn; a run that diverges is part of the result
  local name=$1 log=$out/logs/$1.txt
  shift
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
  echo "== $name =="
  {
    anydepth train "$recipe" --out "$out/$name" "$@" > "$log" 2>&1 || {
      echo "$name: $(tail -n 1 "$log")"
      grep -q "training diverged" "$log" || echo "$name" >> "$failed"
    }
  } &
}
bilingual() { # NAME OPTIONS...
  local name=$1
  shift
  run "$name" --set "$pair" --set "$valid" "$@"
}
finished() { # NAMES...: those that came to an end; `wait` first
  for name in "$@"; do [[ ! -e $out/$name/finished.json ]] || echo "$name"; done
}
pictures() { # REPORT NAMES...
  local report=$1 runs=()
  shift
  wait
  for name in "$@"; do runs+=("$name=$out/$name"); done
  anydepth plot "${runs[@]}" --out "$out/pictures-$report"
}
measure() { # REPORT NAMES...: each at all of its depths
  wait
  for name in $(finished "${@:2}"); do
    anydepth sweep "$name=$out/$name" --source "$data/test_2016_flickr.de" --reference "$data/test_2016_flickr.en" \
      --batch-size 100 --out "$out/sweep-$name" ${DEPTHS:+--depths "$DEPTHS"}
  done
  pictures "$@"
}

part_deep() {
  local deep=(--set model.decoder_layers=100 --set train.steps=300 --set train.batch_tokens=400 --set train.warmup=100)
  bilingual latent-100 "${deep[@]}" --set "objective={$latent, tau_end: 0.5}"
  bilingual static-100 "${deep[@]}"
  pictures deep latent-100 static-100
}
part_main() {
  local half="decoder_target: 12, tau_end: 0.2"
  bilingual latent-24-K12 --set "objective={$latent, $half}"
  bilingual latent-24-K12-hard --set "objective={$latent, $half, samples: straight-through}"
  bilingual latent-24-K12-early --set "objective={name: latent, sides: decoder, $half, tau: 2.0, tau_steps: 600, \
anneal_from: 50, anneal_steps: 150, gate_rate: 0.3, beta: 0.1, lambda: 1.0}"
  bilingual static-24
  bilingual latent-24 --set "objective={$latent, tau_end: 0.5}"
  bilingual static-12 --set model.decoder_layers=12
  bilingual layerdrop-24 --set 'objective={name: layerdrop, encoder_p: 0.0, decoder_p: 0.5}' \
    --set 'train.valid_depths=[6-24, 6-12]'
  bilingual static-24-fast --set train.rate=4.0e-3
  bilingual latent-24-fast --set "objective={$latent, tau_end: 0.5}" --set train.rate=4.0e-3
  bilingual rezero-24 --set model.residual=rezero --set model.norm=none
  bilingual dlcl-24 --set model.residual=dlcl
  measure main static-24 latent-24 latent-24-K12 latent-24-K12-hard latent-24-K12-early static-12 static-24-fast latent-24-fast rezero-24 dlcl-24
  DEPTHS=6-24,6-12 measure layerdrop layerdrop-24
}
pairs() { # the two pairs as a setting
  local each=()
  for to in fr cs; do
    each+=("{source_language: en, target_language: $to, train: {source: $data/train.en, target: $data/train.$to}, \
valid: {source: $data/val.en, target: $data/val.$to}}")
  done
  echo "data={pairs: [${each[0]}, ${each[1]}], vocabulary: 4000, max_tokens: 60}"
}
part_priors() {
  local two=(--set "$(pairs)" --set train.batch_tokens=400 --set train.steps=1000)
  local half="name: latent, sides: decoder, $sooner, tau_end: 0.2, decoder_target: 12"
  run uniform "${two[@]}" --set "objective={$half, prior: [1, 1]}"
  run aggregated "${two[@]}" --set "objective={$half, prior: aggregated}"
  run static-12-two "${two[@]}" --set model.decoder_layers=12
  wait
  for name in $(finished uniform aggregated static-12-two); do
    for to in fr cs; do
      anydepth sweep "$out/$name" --to "$to" --source "$data/test_2016_flickr.en" \
        --reference "$data/test_2016_flickr.$to" --batch-size 100 --out "$out/sweep-$name-$to"
    done
  done
  pictures priors uniform aggregated
}
part_mlm() {
  local text="data={source_language: en, train: {text: $data/train.en}, valid: {text: $data/val.en}, vocabulary: 4000, max_tokens: 60}"
  local encoder=(--set "$text" --set model.encoder_layers=24 --set model.decoder_layers=0 \
    --set train.label_smoothing=0 --set train.steps=1000)
  run mlm-static "${encoder[@]}"
  run mlm-latent "${encoder[@]}" --set "objective={name: latent, sides: encoder, $sooner, tau_end: 0.5}"
  run mlm-layerdrop "${encoder[@]}" --set 'objective={name: layerdrop, encoder_p: 0.5}' \
    --set 'train.valid_depths=[24-0, 12-0]'
  wait
  for name in $(finished mlm-static mlm-latent mlm-layerdrop); do
    anydepth perplexity "$out/$name" --text "$data/test_2016_flickr.en"
  done
  pictures mlm mlm-static mlm-latent
}
part_beta() {
  for beta in 0 1 10; do bilingual "beta-$beta" --set "objective={$latent, tau_end: 0.5, beta: $beta}"; done
  measure beta beta-{0,1,10}
}
part_terms() {
  bilingual no-target --set "objective={$latent, tau_end: 0.2, decoder_target: 12, lambda: 0}"
  bilingual no-kl --set "objective={$latent, tau_end: 0.2, decoder_target: 12, beta: 0}"
  bilingual no-target-no-kl --set "objective={$latent, tau_end: 0.2, decoder_target: 12, lambda: 0, beta: 0}"
  measure terms latent-24-K12 no-target no-kl no-target-no-kl
}
part_inner() {
  for steps in 1 2 5 10; do bilingual "inner-$steps" --set "objective={$latent, tau_end: 0.5, inner_steps: $steps}"; done
  measure inner inner-{1,2,5,10}
}
part_wide() {
  bilingual wide-6 --set model.decoder_layers=6 --set model.width=104 --set model.ffn=416
  measure wide wide-6
}
part_sides() {
  bilingual no-norm --set "objective={$latent, tau_end: 0.5}" --set model.norm=none
  bilingual encoder --set "objective={name: latent, sides: encoder, $schedule, tau_end: 0.5}"
  bilingual both --set "objective={name: latent, sides: both, $schedule, tau_end: 0.5}"
  measure sides no-norm encoder both
}

[[ $# -gt 0 ]] || set -- deep main priors mlm
for part in "$@"; do "part_$part"; done
[[ ! -e $failed ]] || { echo "these did not come to an end: $(paste -sd ' ' "$failed"); see $out/logs" >&2 && exit 1; }
