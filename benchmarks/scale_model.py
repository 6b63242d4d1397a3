"""Operations, memory and network of training, by the sizes of a model's matrices."""

import heapq
import random
from dataclasses import dataclass
from math import ceil, log2

BILLION = 1e9
GIGA = 1e9
LOGITS = 2**22  # at a time: CHUNK_ELEMENTS of objectives/cross_entropy.py
# Vectors of the model's and of the inner width that a layer keeps for each token, with dropout, and those at the ends.
ENCODER_WIDTHS, DECODER_WIDTHS, INNER, ENDS = 10, 17, 1, 8
BUCKET = 25 * 2**20  # bytes of gradients that travel together: PyTorch's own


@dataclass(frozen=True)
class Size:
    """A Transformer: encoder and decoder layers, width, inner width, vocabulary (one matrix for all)."""

    encoder: int
    decoder: int
    width: int
    ffn: int
    vocabulary: int

    def __str__(self) -> str:
        return f"{self.encoder}-{self.decoder}, width {self.width}, inner {self.ffn}, vocabulary {self.vocabulary:,}"

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


@dataclass(frozen=True)
class Cluster:
    """What a worker achieves, not what its maker says: operations per second, bytes of memory, bytes per second to
    others in the same machine and between machines."""

    flops: float
    memory: float
    inside: float
    between: float
    in_a_machine: int
    latency: float = 30e-6  # of a message

    def link(self, workers: int) -> float:
        return self.inside if workers <= self.in_a_machine else self.between


@dataclass(frozen=True)
class Training:
    """`exact` runs the decoder on each of the encoder's exits and predicts at each of the decoder's. With one depth, or
    with exits that are drawn token by token, each layer runs once and each token is predicted once."""

    size: Size
    exact: bool
    tokens: int  # target tokens of an update, all workers together; as many of the source
    length: float = 30.0

    def multiplications(self) -> float:
        """For one target token and its share of the source, forward."""
        n, m = self._passes
        encoder = self.size.encoder * (self.size.encoder_layer + 2 * self.length * self.size.width)
        decoder = self.size.decoder * (self.size.decoder_layer + 4 * self.length * self.size.width)
        return encoder + n * decoder + n * m * self.size.output

    @property
    def _passes(self) -> tuple[int, int]:
        """Exits of the encoder that are decoded, and of the decoder that predict."""
        return (self.size.encoder, self.size.decoder) if self.exact else (1, 1)

    def seconds(self, cluster: Cluster, workers: int, sharded: bool = False) -> tuple[float, float]:
        """Of an update, and how many of them the network is waited for. Two thirds of the computing is the backward
        pass, behind which gradients can travel."""
        compute = 6 * self.multiplications() * self.tokens / workers / cluster.flops
        if workers == 1:
            return compute, 0.0
        messages = 2 * ceil(log2(workers)) * max(1, 4 * self.size.parameters // BUCKET)
        network = self.sent(workers, sharded) / cluster.link(workers) + messages * cluster.latency
        waiting = max(0.0, network - 2 / 3 * compute)
        return compute + waiting, waiting

    def sent(self, workers: int, sharded: bool = False) -> float:
        """Bytes that each worker sends in an update, and each machine if they are in several: gradients are summed
        inside a machine, then between them. Sharded weights are gathered twice, and the sums scattered."""
        return 4 * self.size.parameters * (3 if sharded else 2) * (workers - 1) / workers

    def state(self, workers: int, sharded: bool = False) -> float:
        """Bytes of weights, gradients and two moments."""
        return 16 * self.size.parameters / (workers if sharded else 1)

    def kept(self) -> float:
        """Bytes for a target token of what the forward pass leaves for the backward pass."""
        size, (n, _) = self.size, self._passes
        encoder = size.encoder * (ENCODER_WIDTHS * size.width + INNER * size.ffn)
        decoder = n * size.decoder * (DECODER_WIDTHS * size.width + INNER * size.ffn)
        return 4 * (encoder + decoder + n * ENDS * size.width)

    def memory(self, workers: int, sharded: bool = False, recomputed: bool = False) -> float:
        """Bytes of a worker: the state, what is kept, a chunk of logits; what is sharded is whole for a layer at a
        time, and embeddings all the time."""
        size, (n, _) = self.size, self._passes
        gathered = 8 * (size.output + size.decoder_layer) if sharded else 0
        kept = self.kept()
        if recomputed:  # what goes into each layer, and the inside of one
            inside = DECODER_WIDTHS * size.width + INNER * size.ffn
            kept = 4 * (size.width * (size.encoder + n * size.decoder + n * ENDS) + n * inside)
        return self.state(workers, sharded) + gathered + kept * self.tokens / workers + 3 * 4 * LOGITS


@dataclass(frozen=True)
class Translating:
    """Pieces on workers that now and then die, written down one after the other as `distill` does."""

    sentences: float
    seconds: float  # of a sentence
    piece: int = 2048
    deaths_per_day: float = 1.0  # of a worker
    loading: float = 30.0  # seconds until a worker is ready, at first and after a death
    writing: float = 0.02  # seconds of each piece at home
    ahead: int = 2  # pieces for each worker that are on their way: AHEAD of export/ray.py

    def hours(self, workers: int) -> float:
        """Event by event. Pieces differ in time by a tenth, as lengths do; one whose worker dies is done again."""
        rng = random.Random(1)
        free, window = [self.loading] * workers, self.ahead * workers
        written = [0.0] * window  # when each of the last pieces was
        for number in range(ceil(self.sentences / self.piece)):
            takes = self.piece * self.seconds * max(0.5, rng.gauss(1, 0.1))
            while True:
                begins = max(heapq.heappop(free), written[number % window])
                dies = rng.expovariate(self.deaths_per_day / 86_400) if self.deaths_per_day else float("inf")
                if dies > takes:
                    break
                heapq.heappush(free, begins + dies + self.loading)
            heapq.heappush(free, begins + takes)
            written[number % window] = max(written[number % window - 1], begins + takes) + self.writing
        return max(written) / 3600
