"""A student's layer with the layers of its teacher that it shall resemble.

Shapes: c copies of a batch, r real positions, d the student's width, b batch, h heads, s source length.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anydepth.config import TeacherConfig


class Match(nn.Module):
    """Fuses some layers of the teacher and measures how far a layer of the student is from that (Eq. 3).

    `project: teacher` brings the fused layers to the student's width, f = W [l1 . l2 ...] + b, as in the paper;
    `project: student` brings the student to theirs, as in the authors' code. `distance: square` is the mean square;
    `direction` scales both to length 1 first. With the first of each, W and the student can agree on next to nothing
    (docs/lab-notes.md).
    """

    def __init__(
        self, config: TeacherConfig, layers: tuple[int, ...], of_teacher: int, widths: tuple[int, int]
    ) -> None:
        super().__init__()
        self.fusion, self.onto_student = config.fusion, config.project == "teacher"
        self.by_direction = config.distance == "direction"
        self.layers = tuple(range(1, of_teacher + 1)) if self.fusion == "attention" else layers  # from 1
        teacher, student = widths
        joined = self.fusion == "concat" and len(self.layers) > 1
        fused = teacher * len(self.layers) if joined else teacher
        self.logits = nn.Parameter(torch.zeros(len(self.layers))) if self.fusion == "attention" else None
        sizes = (fused, student) if self.onto_student else (student, fused)
        self.project = nn.Linear(*sizes) if joined or teacher != student else None
        if self.project is not None:
            nn.init.xavier_uniform_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def fused(self, teacher: Mapping[int, Tensor]) -> Tensor:
        chosen = [teacher[layer] for layer in self.layers]
        if self.fusion == "concat":
            return torch.cat(chosen, dim=-1)
        return mixture(chosen, self.shares())

    def shares(self) -> Tensor | None:
        """What each of its layers counts, if that is learnt; None: all the same."""
        return None if self.logits is None else self.logits.softmax(dim=0)

    def forward(self, student_crd: Tensor, teacher: Mapping[int, Tensor], times_r: Tensor | None = None) -> Tensor:
        """The distance, [c], to the teacher's layers, by their number from 1, [r, d] each: the mean over positions,
        of which each may count several times."""
        target = self.fused(teacher)
        if self.project is not None and self.onto_student:
            target = self.project(target)
        elif self.project is not None:
            student_crd = self.project(student_crd)
        student_crd, target = student_crd.float(), target.float()
        if self.by_direction:  # the squared distance of two vectors of length 1
            apart_cr = 2 - 2 * F.cosine_similarity(student_crd, target, dim=-1)
        else:
            apart_cr = (student_crd - target).square().mean(dim=-1)
        return apart_cr.mean(dim=1) if times_r is None else (apart_cr * times_r).mean(dim=1)


def mixture(layers: Sequence[Tensor], shares: Tensor | None) -> Tensor:
    stacked = torch.stack(list(layers))
    return stacked.mean(dim=0) if shares is None else torch.tensordot(shares.to(stacked), stacked, dims=1)


def match_attention(
    student_bhss: Tensor, teacher: Sequence[Tensor], padding_bs: Tensor | None, shares: Tensor | None = None
) -> Tensor:
    """How far the student's attention is from the mean of the teacher's layers: KL, the mean over heads and positions.

    With other numbers of heads, the mean of the heads is compared.
    """
    target_bhss, own_bhss = mixture(teacher, shares), student_bhss
    if target_bhss.shape[1] != own_bhss.shape[1]:
        target_bhss, own_bhss = target_bhss.mean(1, keepdim=True), own_bhss.mean(1, keepdim=True)
    tiny = torch.finfo(torch.float32).tiny  # padding has probability 0 in both
    target_bhss, own_bhss = target_bhss.float(), own_bhss.float()
    apart_bhss = target_bhss * (target_bhss.clamp(min=tiny).log() - own_bhss.clamp(min=tiny).log())
    apart_bs = apart_bhss.sum(dim=-1).mean(dim=1)
    if padding_bs is None:
        return apart_bs.mean()
    return apart_bs.masked_fill(padding_bs, 0.0).sum() / (~padding_bs).sum()
