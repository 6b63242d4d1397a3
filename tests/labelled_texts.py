"""A toy set of labelled texts, and what tests make of models that classify them."""

import random
from pathlib import Path

import torch

from anydepth.artifact import saving
from anydepth.infer.classifier import Classifier
from anydepth.word_depths.table import WordDepths

LABELS = ("bad", "fine", "good")
PLAIN = (
    "the", "a", "film", "story", "actor", "scene", "plot", "music", "camera", "light", "slow", "quick", "long",
    "short", "old", "new", "red", "blue", "house", "dog", "cat", "bird", "tree", "river", "night", "day", "and",
    "or", "but", "with",
)  # fmt: skip
TELLING = {
    "bad": ("awful", "dull", "terrible"),
    "fine": ("decent", "average", "ordinary"),
    "good": ("great", "superb", "lovely"),
}


def toy_texts(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Each with its label: random words, one of which tells it; one text in ten has a label that nothing tells."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        label = rng.choice(LABELS)
        words = [rng.choice(PLAIN) for _ in range(rng.randint(3, 14))]
        words.insert(rng.randrange(len(words) + 1), rng.choice(TELLING[label]))
        made.append((" ".join(words) + ".", rng.choice(LABELS) if rng.random() < 0.1 else label))
    return made


def write_labelled(path: Path, texts: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{label}\t{text}\n" for text, label in texts), "utf-8")
    return path


def save_noisy(run: Path, folder: Path, noise: float) -> Path:
    """The run's model with its weights disturbed: as if trained worse, from another seed."""
    there = Classifier.load(run, device="cpu")
    generator = torch.Generator().manual_seed(1)
    tensors = {
        name: p.detach() + noise * torch.randn(p.shape, generator=generator) * p.detach().std(correction=0)
        for name, p in there.model.named_parameters()
    }
    config, tokenizer, depths = there.model.config, there.tokenizer, there.token_depths
    rest = {"labels": there.labels, "token_depths": depths, "max_tokens": there.max_tokens}
    saving.save(folder, saving.ModelContent(config, tensors, tokenizer, there.menu, ("en", "en"), **rest), {})
    return folder


def reconstruction_table(run: Path, path: Path, layers: int = 3) -> Path:
    """Made by hand: at lambda 0 all words of the run's table go deepest, at 0.2 they run one layer."""
    words = WordDepths.load(run / "model" / "word-depths.json").values
    values = {word: (float(layers), (1.0 + layers) / 2, 1.0) for word in words}
    WordDepths("reconstruction", layers, values, (0.0, 0.1, 0.2), 0.1).save(path)
    return path
