"""What training and translating cost at scale, on paper: a simulation, and how well it foretells what is measured here.

python benchmarks/scale.py [--model models/fr-en]        # prints the tables of docs/scale.md

Training: operations of a model and an objective by the sizes of its matrices, over what a device achieves; gradients
over the network, as much of which as possible during the backward pass. Translating: chunks as tasks on workers that
now and then die, event by event, with the times per sentence that a sweep has left in a model's menu.
"""

import heapq
import random
from dataclasses import dataclass

WORKERS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Size:
    """A Transformer: encoder and decoder layers, width, inner width, vocabulary (one matrix for all)."""

    encoder: int
    decoder: int
    width: int
    ffn: int
    vocabulary: int

    @property
    def encoder_layer(self) -> int:
        return 4 * self.width**2 + 2 * self.width * self.ffn

    @property
    def decoder_layer(self) -> int:
        return 8 * self.width**2 + 2 * self.width * self.ffn

    @property
    def output(self) -> int:
        return self.width * self.vocabulary

    @property
    def parameters(self) -> int:
        return self.encoder * self.encoder_layer + self.decoder * self.decoder_layer + self.output

    def multiplications(self, objective: str, length: float) -> float:
        """For one target token and its share of the source, forward. Attention sees `length` tokens on average.

        `exact` runs the decoder on each of the encoder's exits and predicts at each of the decoder's.
        """
        copies = self.encoder if objective == "exact" else 1
        outputs = self.encoder * self.decoder if objective == "exact" else 1
        encoder = self.encoder * (self.encoder_layer + 2 * length * self.width)
        decoder = self.decoder * (self.decoder_layer + 4 * length * self.width)
        return encoder + copies * decoder + outputs * self.output


@dataclass(frozen=True)
class Device:
    """What it achieves in training, not what its maker says; its memory; its link to the others, bytes per second."""

    name: str
    flops: float
    memory: float
    link: float
    latency: float = 30e-6  # of one message


@dataclass(frozen=True)
class Training:
    size: Size
    objective: str
    tokens: int  # target tokens of an update, all workers together
    length: float = 30.0

    def seconds(self, device: Device, workers: int, sharded: bool = False) -> float:
        """Of an update. Two thirds of the computing is the backward pass, behind which gradients can travel."""
        compute = 6 * self.size.multiplications(self.objective, self.length) * self.tokens / workers / device.flops
        if workers == 1:
            return compute
        moved = 4 * self.size.parameters * (3 if sharded else 2) * (workers - 1) / workers
        messages = 2 * (workers - 1) * max(1, self.size.parameters * 4 // (25 << 20))
        network = moved / device.link + messages * device.latency
        return compute + max(0.0, network - 2 / 3 * compute)

    def memory(self, workers: int, sharded: bool = False) -> float:
        """Weights, gradients, two moments in float32; what a layer keeps for its gradient; a chunk of logits."""
        state = 16 * self.size.parameters / (workers if sharded else 1)
        size, tokens = self.size, self.tokens / workers
        copies = size.encoder if self.objective == "exact" else 1
        kept = size.encoder * (8 * size.width + 2 * size.ffn) + copies * size.decoder * (14 * size.width + 2 * size.ffn)
        return state + 4 * kept * tokens + 4 * (1 << 22) * 3


def makespan(
    sentences: int, chunk: int, seconds: float, workers: int, deaths_per_hour: float, overhead: float, seed: int = 1
) -> float:
    """Hours until all chunks are done. A chunk of which the worker dies is done again by another; a new worker has to
    load the model first. Chunks differ in time by a tenth, as lengths do."""
    rng = random.Random(seed)
    left, free = -(-sentences // chunk), [(overhead, worker) for worker in range(workers)]
    heapq.heapify(free)
    end = 0.0
    while left:
        now, worker = heapq.heappop(free)
        takes = chunk * seconds * max(0.5, rng.gauss(1, 0.1))
        dies = rng.expovariate(deaths_per_hour / 3600) if deaths_per_hour else float("inf")
        if dies < takes:
            heapq.heappush(free, (now + dies + overhead, worker))
            continue
        left -= 1
        end = max(end, now + takes)
        heapq.heappush(free, (now + takes, worker))
    return end / 3600


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |\n| " + " | ".join("---" for _ in head) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()
