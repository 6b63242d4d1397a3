#!/usr/bin/env bash
# How deep must each word go to classify a text? (Liu, Meng, Zhou, Chen and Xu 2021, Tables 3 and 4, Figures 1, 3, 4, 5)
#   recipes/studies/depth-adaptive.sh DATA OUT [PART ...]
# DATA has trec6/train.tsv, trec6/test.tsv, mr/all.tsv and subj/all.tsv, lines of `label<TAB>text` (TREC-6, MR and Subj, as in
# github.com/harvardnlp/sent-conv-torch). The encoder (MiniLM) and the short film reviews are fetched into OUT.
# `anydepth` must be on the path. Every run is resumable; what is finished is not done again.
# Parts, all but the last three by default (about two and a half hours on two cores; JOBS=2 trains two models side by side):
#   words     the model that fills in, of all four sets' texts, and a table of word depths for each set
#   trec      TREC-6, 3 seeds: static, halting, MI, MI trained for several scales, reconstruction; one seed: of each occurrence
#   mr, subj  one fixed split of five
#   reviews   the short film reviews
#   report    accuracy, depth, time; the curves over scale and lambda; a sentence explained
#   exits     what the halting unit's weights are worth without it: all words after layer 1, 2, ... 6; with the depths of MI
#   layers    encoders of 2 and 4 layers beside those of 6 on TREC-6; after trec                         Figure 3
#   shuffled  TREC-6, 3 seeds, MI whose depths are exchanged among words about as frequent; after trec
#   folds     MR and Subj with all five folds
set -euo pipefail
parts=(words trec mr subj reviews report exits layers shuffled folds)
[[ $# -ge 2 ]] || { echo "usage: $0 DATA OUT [PART ...], parts: ${parts[*]}" >&2 && exit 2; }
data=$1 out=$2 jobs=${JOBS:-2}
shift 2
for part in "$@"; do
  [[ " ${parts[*]} " == *" $part "* ]] || { echo "there is no part $part: choose from ${parts[*]}" >&2 && exit 2; }
done
for file in trec6/train.tsv trec6/test.tsv mr/all.tsv subj/all.tsv; do
  [[ -f $data/$file ]] || { echo "there is no $data/$file: see the first lines of this script" >&2 && exit 2; }
done
command -v anydepth > /dev/null || { echo "anydepth is not on the path: . .venv/bin/activate" >&2 && exit 2; }

recipe=$(dirname "$0")/depth-adaptive.yaml
mkdir -p "$out/logs"
anydepth data minilm "$out/minilm"
anydepth data movie-reviews "$out/movie-reviews"
encoder=$out/minilm reviews=$out/movie-reviews/short
scales='objective={name: word-depths, scales: [0.5, 0.75, 1.0, 1.5]}'

run() { # NAME OPTIONS...: waits for its turn
  local name=$1
  shift
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  echo "== $name =="
  anydepth train "$recipe" --out "$out/$name" --set "init_from=$encoder" "$@" > "$out/logs/${name//\//-}.txt" 2>&1 &
}
methods_on() { # SET STEPS OPTIONS...: all four
  local set=$1 steps=$2
  shift 2
  local common=("$@" --set "train.steps=$steps" --set "train.warmup=$((steps / 10))")
  run "$set/static" "${common[@]}"
  run "$set/halting" "${common[@]}" --set 'objective={name: halting}'
  run "$set/mi" "${common[@]}" --set 'objective={name: word-depths}'
  run "$set/reconstruction" "${common[@]}" --set "objective={name: word-depths, depths: $out/words/${set%-folds}.json}"
}
table() { # SET LAMBDA FILES...: of words, from the model that fills in
  local set=$1 files=()
  for file in "${@:3}"; do files+=(--train "$file"); done
  [[ -f $out/words/$set.json ]] || anydepth word-depths reconstruction "${files[@]}" --encoder "$out/words/filler" \
    --max-tokens 128 --lambda "$2" --sample "${SAMPLE:-1000}" --out "$out/words/$set.json" --threads 1 > "$out/logs/words-$set.txt" 2>&1
}
part_words() {
  mkdir -p "$out/words"
  local all=("$data/trec6/train.tsv" "$data/mr/all.tsv" "$data/subj/all.tsv" "$reviews/train.tsv") files=()
  for file in "${all[@]}"; do files+=(--train "$file"); done
  [[ -f $out/words/filler/finished.json ]] || anydepth word-depths reconstruction "${files[@]}" --encoder "$encoder" \
    --work "$out/words/filler" --max-tokens 128 --sample 100 --out "$out/words/all.json" --threads "$jobs" > "$out/logs/words-all.txt" 2>&1
  table trec6 0.1 "${all[0]}"
  table mr 0.1 "${all[1]}"
  table subj 0.1 "${all[2]}"
  [[ -f $out/words/reviews.json ]] || cp "$out/words/mr.json" "$out/words/reviews.json" # sentences of the same kind, most the same
  # as in the paper: each occurrence has a depth of its own, in the test text too
  [[ -f $out/words/trec6-occurrences.json ]] || anydepth word-depths reconstruction --train "$data/trec6/train.tsv" \
    --encoder "$out/words/filler" --max-tokens 128 --sample 500 --occurrences "$data/trec6/train.tsv" --occurrences "$data/trec6/test.tsv" \
    --out "$out/words/trec6-occurrences.json" --threads 1 > "$out/logs/words-trec6-occurrences.txt" 2>&1
}
part_trec() {
  methods_on trec6 240 --set "data.train={labelled: $data/trec6/train.tsv}" --seeds 3
  run trec6/mi-scales --set "data.train={labelled: $data/trec6/train.tsv}" --set "$scales" --seeds 3
  run trec6/occurrences --set "data.train={labelled: $data/trec6/train.tsv}" \
    --set "objective={name: word-depths, depths: $out/words/trec6-occurrences.json}"
  wait
}
part_mr() {
  methods_on mr 450 --set "data.train={labelled: $data/mr/all.tsv}" --set data.folds=5
  wait
}
part_subj() {
  methods_on subj 240 --set "data.train={labelled: $data/subj/all.tsv}" --set data.folds=5
  wait
}
part_reviews() {
  local texts=(--set "data.train={labelled: $reviews/train.tsv}" --set "data.valid={labelled: $reviews/valid.tsv}")
  methods_on reviews 300 "${texts[@]}"
  run reviews/mi-scales "${texts[@]}" --set train.steps=300 --set train.warmup=30 --set "$scales"
  wait
}
measure() { # REPORT SET NAMES... -- OPTIONS...: of a set, each beside the static model
  local report=$1 set=$2 systems=()
  shift 2
  while [[ $1 != -- ]]; do systems+=("$1=$out/$set/$1") && shift; done
  anydepth evaluate "${systems[@]}" --static "$out/$set/static" --engine torch --threads 1 --out "$out/report-$report" "${@:2}"
}
part_report() {
  local trec=(--test "$data/trec6/test.tsv") short=(--test "$reviews/test.tsv")
  measure trec6 trec6 halting mi reconstruction occurrences mi-scales -- "${trec[@]}"
  measure mr mr halting mi reconstruction --
  measure subj subj halting mi reconstruction --
  measure reviews reviews halting mi reconstruction mi-scales -- "${short[@]}"
  measure trec6-scales trec6 halting mi mi-scales -- "${trec[@]}" --scales 0.25,0.5,0.75,1,1.5,2
  measure reviews-scales reviews halting mi mi-scales -- "${short[@]}" --scales 0.25,0.5,0.75,1,1.5,2
  measure trec6-lambdas trec6 reconstruction -- "${trec[@]}" --lambdas 0,0.05,0.1,0.15,0.2                         # Table 4
  measure reviews-lambdas reviews reconstruction -- "${short[@]}" --lambdas 0,0.05,0.1,0.15,0.2
  measure reviews-batches reviews halting mi reconstruction -- "${short[@]}" --batch-sizes 1,2,4,8,16             # Figure 4
  anydepth word-depths mi --train "$reviews/train.tsv" --layers 6 --out "$out/words/reviews-mi.json"                # Figure 1
  anydepth explain "$out/reviews/mi" --with "$out/reviews/reconstruction" --with "$out/reviews/halting" --html "$out/explained.html" \
    "a truly terrible thriller , and one of the most anticipated films of the year" # Figure 5
  python "$(dirname "$0")/depth_adaptive.py" "$out"
}
part_exits() {
  for set in trec6 mr; do
    local options=(--test "$data/trec6/test.tsv") table=$out/trec6/mi/seed-1/word-depths.json
    [[ $set == trec6 ]] || options=() table=$out/$set/mi/word-depths.json
    for n in 1 2 3 4 5 6; do measure "$set-exit-$n" "$set" halting -- "${options[@]}" --depth "$n-0" --timed 100; done
    measure "$set-borrowed" "$set" halting -- "${options[@]}" --word-depths "$table" --scales 0.5,0.75,1,1.5 --timed 100
  done
  python "$(dirname "$0")/depth_adaptive.py" "$out"
}
part_layers() {
  local systems=({static,halting,mi}-{2,4})
  for n in 2 4; do
    local few=(--set "data.train={labelled: $data/trec6/train.tsv}" --set "model={encoder_layers: $n}")
    run "trec6/static-$n" "${few[@]}"
    run "trec6/halting-$n" "${few[@]}" --set 'objective={name: halting}'
    run "trec6/mi-$n" "${few[@]}" --set 'objective={name: word-depths}'
  done
  wait
  for method in static halting mi; do ln -sfn "$method/seed-1" "$out/trec6/$method-6"; done # of part trec
  measure trec6-layers trec6 "${systems[@]}" {static,halting,mi}-6 -- --test "$data/trec6/test.tsv"
  python "$(dirname "$0")/depth_adaptive.py" "$out"
}
part_shuffled() {
  anydepth word-depths mi --train "$data/trec6/train.tsv" --layers 6 --shuffled --out "$out/words/trec6-shuffled.json"
  run trec6/shuffled --set "data.train={labelled: $data/trec6/train.tsv}" --seeds 3 \
    --set "objective={name: word-depths, depths: $out/words/trec6-shuffled.json}"
  wait
  measure trec6-shuffled trec6 mi shuffled -- --test "$data/trec6/test.tsv"
}
part_folds() {
  methods_on mr-folds 450 --set "data.train={labelled: $data/mr/all.tsv}" --folds 5
  methods_on subj-folds 240 --set "data.train={labelled: $data/subj/all.tsv}" --folds 5
  wait
  measure mr-folds mr-folds halting mi reconstruction --
  measure subj-folds subj-folds halting mi reconstruction --
}

chosen=("$@")
[[ $# -gt 0 ]] || chosen=(words trec mr subj reviews report exits)
for part in "${chosen[@]}"; do "part_$part"; done
