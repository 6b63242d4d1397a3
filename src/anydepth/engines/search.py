"""Search over the steps of a decoder, greedy or with a beam: the same for every engine that leaves it to us.

Shapes: b sentences, k beam, r = b x k rows, s source length, v vocabulary.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from anydepth.data import Tokenizer
from anydepth.engines.base import Candidate, SearchOptions, SearchResult, length_penalty

SMALL = 2**14  # below so many logits a plain top-k is as fast


class Steps(Protocol):
    """A batch on its way: the encoder has run, the decoder goes one position per call. Search knows no more of it."""

    device: torch.device
    ran: list[int]  # decoder layers of each row in the last step

    def step(self, tokens_r: Tensor) -> Tensor:
        """Logits [r, v] of the next position, which are the caller's to change."""

    def keep_rows(self, rows: Tensor) -> None:
        """Go on with these rows, in this order; they may repeat (beams) or be missing (finished sentences)."""

    def keep_sentences(self, sentences: Tensor) -> None:
        """The same for what the rows of a sentence share."""


def run_search(decoding: Steps, limits: list[int], options: SearchOptions) -> SearchResult:
    """The best candidates of every sentence, each at most its limit long with EOS."""
    return (greedy_search if options.beam == 1 else beam_search)(decoding, limits, options)


def _begin(decoding: Steps, rows: int, options: SearchOptions) -> Tensor:
    """The last of the tokens that outputs begin with, after a step for the one before it."""
    tokens_r = torch.full((rows,), Tokenizer.BOS, device=decoding.device)
    if options.first is None:
        return tokens_r
    decoding.step(tokens_r)
    return torch.full_like(tokens_r, options.first)


def greedy_search(decoding: Steps, limits: list[int], options: SearchOptions) -> SearchResult:
    """The best token at every step."""
    alive = list(range(len(limits)))
    outputs: list[list[int]] = [[] for _ in limits]
    log_p = torch.full((len(limits),), 0.0 if options.scores else float("nan"), device=decoding.device)
    results: list[list[Candidate]] = [[] for _ in limits]
    layers = [0] * len(limits)
    tokens_r = _begin(decoding, len(limits), options)
    for length in range(1, max(limits) + 1):
        logits_rv = decoding.step(tokens_r)
        if options.scores:
            log_p -= logits_rv.logsumexp(dim=-1)
        if length <= options.min_length:
            logits_rv[:, Tokenizer.EOS] = float("-inf")
        tokens_r = largest(logits_rv, 1)[1][:, 0]
        if options.scores:
            log_p += logits_rv.gather(1, tokens_r[:, None])[:, 0]
        going = []
        for row, (sentence, token) in enumerate(zip(alive, tokens_r.tolist(), strict=True)):
            ended = token == Tokenizer.EOS
            layers[sentence] += decoding.ran[row]
            if not ended:
                outputs[sentence].append(token)
            if ended or length >= limits[sentence]:
                score = float(log_p[row]) / length_penalty(length, options.length_penalty)
                results[sentence] = [Candidate(tuple(outputs[sentence]), score, ended, layers[sentence] / length)]
            else:
                going.append(row)
        if not going:
            break
        if len(going) < len(alive):
            rows = torch.tensor(going, device=decoding.device)
            decoding.keep_rows(rows)
            decoding.keep_sentences(rows)
            tokens_r, log_p = tokens_r[rows], log_p[rows]
            alive = [alive[row] for row in going]
    return results


def beam_search(decoding: Steps, limits: list[int], options: SearchOptions) -> SearchResult:
    """A sentence is done when `beam` hypotheses have ended, or at its limit."""
    k = options.beam
    beams = _Beams(len(limits), limits, options)
    tokens_r = _begin(decoding, len(limits), options)
    scores_bk = torch.zeros(len(limits), 1, device=decoding.device)
    for length in range(1, max(limits) + 1):
        log_p_rv = decoding.step(tokens_r).log_softmax(dim=-1)
        if length <= options.min_length:
            log_p_rv[:, Tokenizer.EOS] = float("-inf")
        # 2k candidates: even if k of them end here, k go on
        per_row = min(2 * k, log_p_rv.shape[1] - Tokenizer.EOS)
        best_rc, token_rc = largest(log_p_rv, per_row)
        b, width = scores_bk.shape
        total_bc = (scores_bk[:, :, None] + best_rc.view(b, width, per_row)).flatten(1)
        score_bc, place_bc = total_bc.topk(min(2 * k, total_bc.shape[1]), dim=-1)
        parent_bc = place_bc // per_row
        token_bc = token_rc.view(b, -1).gather(1, place_bc)
        chosen = beams.extend(length, decoding.ran, score_bc.tolist(), parent_bc.tolist(), token_bc.tolist())
        if not chosen.sentences:
            break
        rows = [chosen.sentences[i] * width + p for i, ps in enumerate(chosen.parents) for p in ps]
        if rows != list(range(b * width)):
            decoding.keep_rows(torch.tensor(rows, device=decoding.device))
        if len(chosen.sentences) < b:
            decoding.keep_sentences(torch.tensor(chosen.sentences, device=decoding.device))
        tokens_r = torch.tensor(chosen.tokens, device=decoding.device).flatten()
        scores_bk = torch.tensor(chosen.scores, device=decoding.device)
    return beams.results


@dataclass
class _Chosen:
    """The hypotheses that go on: for each sentence still alive its place in the batch, and k rows of the rest."""

    sentences: list[int]
    parents: list[list[int]]
    tokens: list[list[int]]
    scores: list[list[float]]


class _Beams:
    """The book-keeping of beam search on the host: a few numbers per sentence and step."""

    def __init__(self, sentences: int, limits: list[int], options: SearchOptions) -> None:
        self.limits, self.options = limits, options
        self.alive = list(range(sentences))
        self.prefixes: list[list[tuple[int, ...]]] = [[()] for _ in range(sentences)]
        self.layers: list[list[int]] = [[0] for _ in range(sentences)]  # that the tokens of each have run
        self.finished: list[list[Candidate]] = [[] for _ in range(sentences)]
        self.results: list[list[Candidate]] = [[] for _ in range(sentences)]

    def extend(
        self, length: int, ran: list[int], scores: list[list[float]], parents: list[list[int]], tokens: list[list[int]]
    ) -> _Chosen:
        """Take in the candidates of one position, best first for each sentence alive."""
        chosen = _Chosen([], [], [], [])
        still_alive = []
        width = len(ran) // len(self.alive)
        for place, sentence in enumerate(self.alive):
            own = ran[place * width : (place + 1) * width]
            self.layers[sentence] = [n + more for n, more in zip(self.layers[sentence], own, strict=False)]
            going = self._extend_one(sentence, length, scores[place], parents[place], tokens[place])
            if going is None:
                kept = sorted(self.finished[sentence], key=lambda c: -c.score)
                self.results[sentence] = kept[: self.options.nbest]
                continue
            still_alive.append(sentence)
            chosen.sentences.append(place)
            chosen.parents.append([parents[place][i] for i in going])
            chosen.tokens.append([tokens[place][i] for i in going])
            chosen.scores.append([scores[place][i] for i in going])
            self._fill_up(chosen)
        self.alive = still_alive
        return chosen

    def _extend_one(
        self, sentence: int, length: int, scores: list[float], parents: list[int], tokens: list[int]
    ) -> list[int] | None:
        """The candidates that go on, or None if the sentence is done."""
        k, finished, prefixes = self.options.beam, self.finished[sentence], self.prefixes[sentence]
        layers = self.layers[sentence]
        penalty = length_penalty(length, self.options.length_penalty)
        going = []
        for rank, (score, parent, token) in enumerate(zip(scores, parents, tokens, strict=True)):
            if score == float("-inf"):
                continue
            if token != Tokenizer.EOS:
                going.append(rank)
            elif rank < k:  # an end worse than k others is no better than going on with those
                finished.append(Candidate(prefixes[parent], score / penalty, layers=layers[parent] / length))
            if len(going) == k:
                break
        at_limit = length >= self.limits[sentence]
        if at_limit and len(finished) < k:
            cut_off = [(*prefixes[parents[i]], tokens[i]) for i in going]
            finished += [
                Candidate(one, scores[i] / penalty, ended=False, layers=layers[parents[i]] / length)
                for i, one in zip(going, cut_off, strict=True)
            ]
        if at_limit or not going or len(finished) >= k:
            return None
        self.prefixes[sentence] = [(*prefixes[parents[i]], tokens[i]) for i in going]
        self.layers[sentence] = [layers[parents[i]] for i in going]
        return going

    def _fill_up(self, chosen: _Chosen) -> None:
        """With fewer candidates than the beam is wide (a tiny vocabulary), copies that can never win keep it full."""
        missing = self.options.beam - len(chosen.tokens[-1])
        chosen.parents[-1] += [chosen.parents[-1][0]] * missing
        chosen.tokens[-1] += [chosen.tokens[-1][0]] * missing
        chosen.scores[-1] += [float("-inf")] * missing


def never(logits_rv: Tensor) -> Tensor:
    """Rule out what may never be generated: PAD, UNK and BOS come before EOS."""
    logits_rv[:, : Tokenizer.EOS] = float("-inf")
    return logits_rv


def largest(x_rv: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`x_rv.topk(k)` in less than half the time: the k largest values lie in the k blocks with the largest maxima."""
    rows, v = x_rv.shape
    block = next((size for size in (64, 32, 16) if v % size == 0 and v // size >= 2 * k), None)
    if block is None or rows * v < SMALL:
        return tuple(x_rv.topk(k, dim=-1))  # type: ignore[return-value]
    blocks_rnb = x_rv.view(rows, v // block, block)
    chosen_rk = blocks_rnb.amax(dim=-1).topk(k, dim=-1, sorted=False).indices
    candidates = blocks_rnb.gather(1, chosen_rk[:, :, None].expand(rows, k, block)).view(rows, k * block)
    values, places = candidates.topk(k, dim=-1)
    return values, chosen_rk.gather(1, places // block) * block + places % block
