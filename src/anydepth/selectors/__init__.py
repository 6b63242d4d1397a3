"""What picks the depth: a latency budget, or a learnt choice per sentence. Training it is an objective's business."""

from anydepth.selectors.selector import Selector

__all__ = ["Selector"]
