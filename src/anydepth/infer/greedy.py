"""Greedy search: the best token at every step.

Shapes: b sentences, k beam, r = b x k rows, s source length, v vocabulary.
"""

import torch

from anydepth.data import Tokenizer
from anydepth.infer.decoding import Candidate, SearchOptions, Steps, largest, length_penalty


def greedy(decoding: Steps, limits: list[int], options: SearchOptions) -> list[list[Candidate]]:
    alive = list(range(len(limits)))
    outputs: list[list[int]] = [[] for _ in limits]
    log_p = torch.full((len(limits),), 0.0 if options.scores else float("nan"), device=decoding.device)
    results: list[list[Candidate]] = [[] for _ in limits]
    tokens_r = torch.full((len(limits),), Tokenizer.BOS, device=decoding.device)
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
            if not ended:
                outputs[sentence].append(token)
            if ended or length >= limits[sentence]:
                score = float(log_p[row]) / length_penalty(length, options.length_penalty)
                results[sentence] = [Candidate(tuple(outputs[sentence]), score, ended)]
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
