"""README.md of an export: what it is and a program that runs it, with no anydepth about."""

import json
from typing import Any

import yaml

from anydepth.depth import MenuEntry

CTRANSLATE2 = """import ctranslate2
import sentencepiece

tokenizer = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
model = ctranslate2.Translator(".", inter_threads=2, intra_threads=1)
text = {text}
pieces = {tag}tokenizer.encode(text, out_type=str)  # at most {longest}: divide longer texts into sentences
limit = min(2 * len(pieces) + 12, {longest})
best = model.translate_batch([pieces], beam_size=1, max_input_length=0, max_decoding_length=limit)[0].hypotheses[0]
print(tokenizer.decode(best))"""

ONNX = """import numpy as np
import onnxruntime
import sentencepiece

tokenizer = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
encoder, decoder = (onnxruntime.InferenceSession(name) for name in ("encoder.onnx", "decoder.onnx"))
text = {text}
source = np.array([{tag}tokenizer.encode(text) + [tokenizer.eos_id()]])  # at most {longest}: divide longer texts
mask = np.ones(source.shape, bool)  # False where shorter sentences of a batch are padded
(memory,) = encoder.run(None, {{"source_ids": source, "source_mask": mask}})
layers, batch, heads, _, width = memory.shape
past = np.zeros((layers, batch, heads, 0, width), np.float32)
token, output = np.array([tokenizer.bos_id()]), []
for step in range(min(2 * source.shape[1] + 10, {longest})):
    logits, past = decoder.run(None, {{"token_ids": token, "memory": memory, "source_mask": mask, "past": past}})
    if step == 0:
        logits[:, tokenizer.eos_id()] = -np.inf  # no empty output
    token = logits.argmax(-1)
    if token[0] == tokenizer.eos_id():
        break
    output.append(int(token[0]))
print(tokenizer.decode(output))"""

VMAP = (
    "`vmap.txt` says which outputs a source suggests. With `use_vmap=True`, `translate_batch` searches among those of "
    "the batch: faster, at next to the same quality."
)
PROGRAMS = {
    "ctranslate2": (CTRANSLATE2, "ctranslate2 sentencepiece"),
    "onnx": (ONNX, "onnxruntime sentencepiece numpy"),
}
SUFFIXES = {"ctranslate2": "['{tag}'] + ", "onnx": "[tokenizer.piece_to_id('{tag}')] + "}


def export_card(record: dict[str, Any], entry: MenuEntry, example: str) -> str:
    """`record` is the content of export.json; `example` a sentence for the program to translate."""
    source, target = record["languages"]
    program, packages = PROGRAMS[record["format"]]
    tag = SUFFIXES[record["format"]].format(tag=record["tag"]) if "tag" in record else ""
    facts, text = record["facts"], json.dumps(example, ensure_ascii=False)
    data = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.get("data", {}).items()]
    figures = {
        "BLEU": entry.quality.get("bleu"),
        "chrF": entry.quality.get("chrf"),
    }
    measured = ", ".join(f"{name} {value:.1f}" for name, value in figures.items() if value is not None)
    head = {"language": [source, target], "pipeline_tag": "translation", "tags": ["translation", record["format"]]}
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {source} to {target}, depth {record['depth']}, for {record['format']}",
        f"Numbers are {record['quantization']}. Exported by {record['made_by']}"
        + (f"; before that, the model had {measured} at this depth." if measured else "."),
        *([facts["about"]["text"]] if "about" in facts else []),
        f"Run it in this folder, with `pip install {packages}`:",
        f"```python\n{program.format(text=text, tag=tag, longest=record['longest'])}\n```",
        *([VMAP] if record.get("shortlist") else []),
        "## Data",
        "\n".join(data) or "Not recorded.",
    ]
    return "\n\n".join(parts) + "\n"
