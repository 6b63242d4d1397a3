"""Training speed against a peer's trainer: Hugging Face's Seq2SeqTrainer with a Marian model of the same size.

python benchmarks/training.py [--width 256] [--layers 6 3] [--vocabulary 8000] [--batch-tokens 4000] [--repeats 3]

Target tokens per CPU second, padding not counted, in one thread: the same sentences (Tatoeba), the same vocabulary and
Adam on both sides. Their batches are as `group_by_length` makes them, with as many rows as hold the same number of
tokens on average. Interleaved, each way in processes of its own; medians. Needs `pip install accelerate`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import print_versions
from torch.nn.utils.rnn import pad_sequence

from anydepth.config import DataConfig, ModelConfig, TiedMultiConfig, TrainConfig, VanillaConfig
from anydepth.data import BatchStream, Prepared, prepare
from anydepth.model import Transformer
from anydepth.objectives import make_objective
from anydepth.training.optim import learning_rate_at, make_optimizers

WARM_UP, UPDATES = 3, 15
OURS: dict[str, tuple[VanillaConfig | TiedMultiConfig, str]] = {
    "anydepth, one depth": (VanillaConfig(), "adam"),
    "anydepth, all depths": (TiedMultiConfig(name="tied-multi", mode="sampled-encoder"), "adam"),
    "anydepth, all depths, Muon": (TiedMultiConfig(name="tied-multi", mode="sampled-encoder"), "muon"),
}
PEER = "Seq2SeqTrainer"


def prepared_data(work: Path, vocabulary: int) -> Prepared:
    if not (work / "tatoeba").exists():
        subprocess.run([sys.executable, "-m", "anydepth", "data", "tatoeba-en-fr", str(work / "tatoeba")], check=True)
    corpus = {"source": work / "tatoeba" / "train.fr", "target": work / "tatoeba" / "train.en"}
    return prepare(DataConfig(train=corpus, vocabulary=vocabulary, max_tokens=100), work / "data", 1)  # type: ignore[arg-type]


def ours(name: str, options: argparse.Namespace, data: Prepared) -> float:
    """The updates of the Trainer, without its logs and checkpoints."""
    objective_config, optimizer = OURS[name]
    config = TrainConfig(optimizer=optimizer, warmup=10)  # type: ignore[arg-type]
    model_config = ModelConfig(
        width=options.width,
        heads=options.width // 64,
        ffn=4 * options.width,
        encoder_layers=options.layers[0],
        decoder_layers=options.layers[1],
    )
    model = Transformer(model_config, options.vocabulary)
    objective = make_objective(objective_config, model_config, config.label_smoothing, config.seed)
    stream = BatchStream(data.parts[0].train, options.batch_tokens, config.seed)
    named = dict(model.named_parameters())
    optimizers = make_optimizers(named, [], config)
    tokens, began = 0, 0.0
    for step in range(1, WARM_UP + UPDATES + 1):
        if step == WARM_UP + 1:
            tokens, began = 0, time.process_time()
        batch = stream.at(0, step)
        objective(model, batch, step).total.backward()
        for one in optimizers:
            one.set_learning_rate(learning_rate_at(step, config))
            one.clip(config.clip, one.norm())
            one.optimizer.step()
            one.optimizer.zero_grad(set_to_none=True)
        tokens += batch.target_tokens
    return tokens / (time.process_time() - began)


def peer(options: argparse.Namespace, data: Prepared) -> float:
    import transformers
    from transformers import MarianConfig, MarianMTModel

    store = data.parts[0].train
    longer = torch.tensor([max(a, b) + 1 for a, b in zip(store.source_lengths, store.target_lengths, strict=True)])
    rows = max(1, round(options.batch_tokens / float(longer.float().mean())))
    model = MarianMTModel(
        MarianConfig(
            vocab_size=options.vocabulary,
            d_model=options.width,
            encoder_layers=options.layers[0],
            decoder_layers=options.layers[1],
            encoder_ffn_dim=4 * options.width,
            decoder_ffn_dim=4 * options.width,
            encoder_attention_heads=options.width // 64,
            decoder_attention_heads=options.width // 64,
            activation_function="relu",
            dropout=0.1,
            pad_token_id=0,
            eos_token_id=3,
            decoder_start_token_id=2,
            max_position_embeddings=128,
        )
    )
    examples = [
        {"input_ids": [*source.tolist(), 3], "labels": [*target.tolist(), 3]}
        for source, target in (store.pair(i) for i in range(rows * (WARM_UP + UPDATES) * 2))
    ]

    counted = {"tokens": 0, "began": 0.0, "seconds": 0.0}

    class Counter(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == WARM_UP:
                counted.update(tokens=0, began=time.process_time())
            if state.global_step == WARM_UP + UPDATES:
                counted["seconds"] = time.process_time() - counted["began"]

    def collate(features: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        ids, labels = (
            pad_sequence([torch.tensor(one[side]) for one in features], batch_first=True, padding_value=padding)
            for side, padding in (("input_ids", 0), ("labels", -100))
        )
        counted["tokens"] += int((labels != -100).sum())
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": labels,
            "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels),
        }

    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(options.work / "peer"),
        per_device_train_batch_size=rows,
        max_steps=WARM_UP + UPDATES,
        learning_rate=1e-3,
        label_smoothing_factor=0.1,
        train_sampling_strategy="group_by_length",
        max_grad_norm=1.0,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=0,
    )
    transformers.Seq2SeqTrainer(
        model, arguments, data_collator=collate, train_dataset=examples, callbacks=[Counter()]
    ).train()
    return counted["tokens"] / counted["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, nargs=2, default=[6, 3])
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch-tokens", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only")  # one way, in this process
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if options.only:
        data = prepared_data(options.work, options.vocabulary)
        print(json.dumps(peer(options, data) if options.only == PEER else ours(options.only, options, data)))
        return
    print_versions("transformers")
    with tempfile.TemporaryDirectory() as folder:
        options.work = options.work or Path(folder)
        prepared_data(options.work, options.vocabulary)
        found: dict[str, list[float]] = {name: [] for name in (PEER, *OURS)}
        for _ in range(options.repeats):
            for name, speeds in found.items():
                command = [sys.executable, __file__, *sys.argv[1:], "--work", str(options.work), "--only", name]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                speeds.append(json.loads(done.stdout.splitlines()[-1]))
    for name, speeds in found.items():
        ratio = median(one / other for one, other in zip(speeds, found[PEER], strict=True))
        print(f"{name}: {median(speeds):,.0f} target tokens per CPU second, {ratio:.2f} times {PEER}")


if __name__ == "__main__":
    main()
