#!/usr/bin/env bash
# Does a shallow student learn more from a deep teacher's outputs, from its layers, or from layers combined?
# (Wu, Passban, Rezagholizadeh and Liu 2020, Table 1, Section 4.1)
#   recipes/studies/ckd.sh DATA OUT [PART ...]
# DATA has train, val and test_2016_flickr .de and .en of Multi30k (github.com/multi30k/dataset, data/task1/raw).
# `anydepth` must be on the path. Every run is resumable; what is finished is not done again.
# Parts, main by default:
#   main    a 6-6 teacher; 2-2 students: none, RKD, PKD, PKD + attention, RC, OC, SC, CC    Table 1, Pt-En and Tr-En
#   fusion  other ways to combine: interleaved, mean, attention; who is projected, and how layers are compared
#   tenth   the students on a tenth of the text, the teacher on all                        Table 1, En-De_2
#   self    tied-multi 6-6 with and without its deepest exit as the teacher of the others, by outputs and by layers
# Every part ends in a report in OUT/report-PART. SEEDS="1 2 3" trains the students of the first three parts with each
# of these seeds (default 1). JOBS models train side by side, on a thread each (default 2). On two cores with nothing
# else to do, main takes about an hour with one seed, and all parts take about two and a half.
set -euo pipefail
parts=(main fusion tenth self)
[[ $# -ge 2 ]] || { echo "usage: $0 DATA OUT [PART ...], parts: ${parts[*]}" >&2 && exit 2; }
data=$1 out=$2 seeds=${SEEDS:-1} jobs=${JOBS:-2}
shift 2
for part in "$@"; do
  [[ " ${parts[*]} " == *" $part "* ]] || { echo "there is no part $part: choose from ${parts[*]}" >&2 && exit 2; }
done
for file in {train,val,test_2016_flickr}.{de,en}; do
  [[ -f $data/$file ]] || { echo "there is no $data/$file: DATA is data/task1/raw of Multi30k" >&2 && exit 2; }
done
command -v anydepth > /dev/null || { echo "anydepth is not on the path: . .venv/bin/activate" >&2 && exit 2; }

recipe=$(dirname "$0")/ckd.yaml
test=(--source "$data/test_2016_flickr.de" --reference "$data/test_2016_flickr.en" --batch-size 100)
all=$data/train tenth=$out/data/tenth
if [[ ! -e $tenth.en ]]; then
  mkdir -p "$out/data"
  for language in de en; do
    awk 'NR % 10 == 1' "$all.$language" > "$tenth.$language.part"
    mv "$tenth.$language.part" "$tenth.$language"
  done
fi

run() { # NAME TEXT OPTIONS...: in the background, as soon as there is room; what it says goes to OUT/logs
  local name=$1 text=$2 log=$out/logs/${1//\//-}.txt
  shift 2
  mkdir -p "$out/logs"
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || exit 2; done
  echo "$(date +%H:%M) $name"
  { anydepth train "$recipe" --out "$out/$name" --set "data.train={source: $text.de, target: $text.en}" \
    --set "data.valid={source: $data/val.de, target: $data/val.en}" "$@" > "$log" 2>&1 ||
    { tail -n 1 "$log" >&2 && exit 2; }; } &
}
finish() { # waits for all that runs
  while [[ -n $(jobs -rp) ]]; do wait -n || exit 2; done
}
student() { # NAME TEXT UPDATES [TEACHER-KEYS]: one model for each seed
  local teacher=(--set "data.tokenizer=$out/teacher")
  [[ $# -lt 4 ]] || teacher=(--set "teacher={model: $out/teacher, $4}")
  for seed in $seeds; do
    run "$1/$seed" "$2" "${teacher[@]}" --set model.encoder_layers=2 --set model.decoder_layers=2 \
      --set "train.steps=$3" --set train.warmup=200 --set "train.seed=$seed"
  done
}
compare() { # PART NAMES...: the first is the baseline; NAME=MODEL is one that has no seeds
  local part=$1 systems=()
  shift
  for name in "$@"; do
    [[ $name != *=* ]] || { systems+=("$name") && continue; }
    local found=()
    for seed in $seeds; do found+=("$out/$name/$seed"); done
    systems+=("$(basename "$name")=$(IFS=,; echo "${found[*]}")")
  done
  finish
  anydepth compare "${systems[@]}" "${test[@]}" --out "$out/report-$part"
}

part_main() {
  student none "$all" 2000
  student rkd "$all" 2000 "method: rkd"
  student pkd "$all" 2000 "method: pkd"
  student pkd-attention "$all" 2000 "method: pkd, attention: true"
  for map in regular overlap skip cross; do student "$map" "$all" 2000 "method: ckd, map: $map"; done
  compare main none rkd pkd pkd-attention regular overlap skip cross "teacher=$out/teacher"
}
part_fusion() {
  student none "$all" 2000
  student regular "$all" 2000 "method: ckd, map: regular"
  student interleave "$all" 2000 "method: ckd, map: interleave"
  student mean "$all" 2000 "method: ckd, map: regular, fusion: mean"
  student attention "$all" 2000 "method: ckd, fusion: attention"
  student regular-square "$all" 2000 "method: ckd, map: regular, distance: square"
  student regular-teacher "$all" 2000 "method: ckd, map: regular, project: teacher"
  student regular-literal "$all" 2000 "method: ckd, map: regular, project: teacher, distance: square"
  student pkd-square "$all" 2000 "method: pkd, distance: square"
  compare fusion none regular interleave mean attention regular-square regular-teacher regular-literal pkd-square
}
part_tenth() {
  student tenth/none "$tenth" 1000
  student tenth/rkd "$tenth" 1000 "method: rkd"
  student tenth/pkd "$tenth" 1000 "method: pkd"
  for map in regular overlap skip cross; do student "tenth/$map" "$tenth" 1000 "method: ckd, map: $map"; done
  compare tenth tenth/{none,rkd,pkd,regular,overlap,skip,cross} "teacher=$out/teacher"
}
part_self() {
  local tied=(--set "data.tokenizer=$out/teacher" --set 'objective={name: tied-multi}' --set 'train.valid_depths=[6-6, 1-1]')
  run tied "$all" "${tied[@]}"
  run tied-outputs "$all" "${tied[@]}" --set 'teacher={model: self, method: rkd, eta: 0.3}'
  run tied-layers "$all" "${tied[@]}" --set 'teacher={model: self, method: ckd, eta: 0.3, lambda: 0.1, begin: 1500}'
  finish
  anydepth sweep "$out"/{tied,tied-outputs,tied-layers} "${test[@]}" --no-record --out "$out/report-self"
}

run teacher "$all"
finish
for part in "${@:-main}"; do "part_$part"; done
