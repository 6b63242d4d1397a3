"""What `translate` was asked to pick the depth by."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.depths import Depth
    from anydepth.infer.translator import Translator


def choice_of_depth(
    translator: "Translator",
    depth: str | None,
    budget: str | None,
    threshold: float | None,
    beam: int,
    batch_size: int,
    say: Callable[[str], None],
) -> "Depth":
    from anydepth.infer.depths import AUTO
    from anydepth.selectors.auto_budget import AutoWithinBudget
    from anydepth.selectors.budget import within_budget

    if threshold is not None and (depth != AUTO or budget is not None):
        raise UserError("--threshold is for --depth auto without a budget: leave it out, or leave out the others")
    if threshold is not None and not math.isfinite(threshold):
        raise UserError(f"a threshold of {threshold} is no number to go by: give one such as 0.5 or 3")
    if budget is not None and depth not in (None, AUTO):
        raise UserError(f"--depth {depth} and --budget {budget} both choose the depth: give one of the two")
    if depth == AUTO and translator.selector is not None:
        if budget is not None:
            fixed = within_budget(translator, budget, beam=beam, batch_size=batch_size, say=say)
            return AutoWithinBudget(translator.selector, fixed, say)
        return translator.selector if threshold is None else translator.selector.with_threshold(threshold)
    if budget is not None and depth is None:
        return within_budget(translator, budget, beam=beam, batch_size=batch_size, say=say)
    return depth
