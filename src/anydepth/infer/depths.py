"""The depth of each text: one for all, one for each, or by a selector."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anydepth.artifact.model import LoadedModel
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.infer.languages import must_choose
from anydepth.selectors import Selector

if TYPE_CHECKING:
    from anydepth.selectors.learned import LearnedSelector

AUTO = "auto"  # the model's own selector
Depth = str | Sequence[str] | Selector | None


def own_selector(loaded: LoadedModel) -> "LearnedSelector | None":
    """The one in the model's folder, if there is one."""
    if loaded.folder is None or not (loaded.folder / "selector").exists():
        return None
    from anydepth.selectors.learned import load_selector

    return load_selector(loaded.folder, loaded.model, loaded.tokenizer, loaded.menu.whole, loaded.checksum)


def why_no_selector(loaded: LoadedModel) -> str | None:
    """If none can be trained for it, the reason."""
    menu = loaded.menu
    weighted = [entry.name for entry in menu if entry.subnetwork.is_weighted]
    if loaded.kind == "encoder":
        return "this model is an encoder alone: a selector is for models that translate"
    if len(menu) == 1:
        return f"this model has one depth only, {menu.deepest.name}: there is nothing to choose"
    if must_choose(loaded) or loaded.tag is not None or any(entry.pair for entry in menu.whole):
        return "a selector cannot be trained for a model of several language pairs yet: name a depth instead"
    if any(entry.subnetwork.by_word for entry in menu):
        return "a selector cannot be trained where each word has its own depth: name a depth instead"
    if weighted:
        return (
            f"a selector cannot be trained for depths whose layers have weights, such as {weighted[0]}: "
            "it is for models with several plain depths, such as tied-multi"
        )
    return None


def no_selector(loaded: LoadedModel) -> UserError:
    reason = why_no_selector(loaded)
    if reason is not None:
        return UserError(f"`auto` needs a selector; {reason}")
    return UserError("this model has no selector for `auto`: make one with `anydepth select`, or name a depth")


def group_by_depth(
    menu: DepthMenu, depth: Depth, sources: Sequence[list[int]], waiting: Sequence[int]
) -> dict[str, list[int]]:
    """Which of the texts that are `waiting` run at each depth."""
    if depth is None or isinstance(depth, str):
        return {menu[depth].name: list(waiting)}
    if isinstance(depth, Selector):
        names: Sequence[str] = depth.choose([sources[i] for i in waiting]) if waiting else []
    elif len(depth) == len(sources):
        names = [depth[i] for i in waiting]
    else:
        raise UserError(f"there are {len(sources):,} texts but {len(depth):,} depths: give one for each text")
    groups: dict[str, list[int]] = {}
    for i, name in zip(waiting, names, strict=True):
        groups.setdefault(menu[name].name, []).append(i)
    return groups
