"""Which layers of a teacher each layer of its student learns from (Wu et al. 2020, "Why Skip If You Can Combine").

Teacher and student layers are both counted from 1, as in the paper and in recipes.
"""

from collections.abc import Callable, Mapping, Sequence

from anydepth.errors import UserError

LayerMap = dict[int, tuple[int, ...]]


def _last(teacher: int, student: int) -> LayerMap:
    """PKD: the last layer of each regular block."""
    return {layer: block[-1:] for layer, block in _regular(teacher, student).items()}


def _regular(teacher: int, student: int) -> LayerMap:
    """RC: contiguous blocks of near-equal length; one layer for several blocks if the student is the deeper one."""
    if student > teacher:
        return {i: (_divided_up(i * teacher, student),) for i in _counted(student)}
    ends = [i * teacher // student for i in range(student + 1)]
    return {i: tuple(range(ends[i - 1] + 1, ends[i] + 1)) for i in _counted(student)}


def _overlap(teacher: int, student: int) -> LayerMap:
    """OC: each regular block, grown by one layer on each side where there is one."""
    blocks = _regular(teacher, student)
    return {i: tuple(range(max(1, b[0] - 1), min(teacher, b[-1] + 1) + 1)) for i, b in blocks.items()}


def _skip(teacher: int, student: int) -> LayerMap:
    """SC: runs shorter than the blocks, from the first layer to the last; layers between them are skipped."""
    length = max(1, _divided_up(teacher, student) - 1)
    last_start = teacher - length + 1
    if student == 1:
        return {1: tuple(range(last_start, teacher + 1))}
    starts = (1 + round(i * (last_start - 1) / (student - 1)) for i in range(student))
    return {i: tuple(range(start, start + length)) for i, start in enumerate(starts, 1)}


def _cross(teacher: int, student: int) -> LayerMap:
    """CC: the two ends of each regular block."""
    return {layer: tuple(sorted({block[0], block[-1]})) for layer, block in _regular(teacher, student).items()}


def _interleave(teacher: int, student: int) -> LayerMap:
    """Every S-th layer, as Fig. 2 draws CC; a student with more layers than the teacher starts again at 1."""
    return {i: tuple(range((i - 1) % teacher + 1, teacher + 1, student)) for i in _counted(student)}


def _counted(layers: int) -> range:
    return range(1, layers + 1)


def _divided_up(number: int, by: int) -> int:
    return -(-number // by)


MAPS: dict[str, Callable[[int, int], LayerMap]] = {
    "last": _last,
    "regular": _regular,
    "overlap": _overlap,
    "skip": _skip,
    "cross": _cross,
    "interleave": _interleave,
}


def layer_map(name: str, teacher: int, student: int) -> LayerMap:
    """The map of this name for a teacher and a student with so many layers."""
    if name not in MAPS:
        raise UserError(f"there is no layer map {name!r}: choose from {', '.join(MAPS)}")
    for whose, layers in (("teacher", teacher), ("student", student)):
        if layers < 1:
            raise UserError(f"a {whose} of {layers} layers cannot be matched: give 1 or more")
    return MAPS[name](teacher, student)


def check_map(given: Mapping[int, Sequence[int]], teacher: int, student: int) -> LayerMap:
    """The explicit map of a recipe, in order. A student layer that it leaves out is not matched."""
    if not given:
        raise UserError(f"teacher.map is empty: name the layers, as in {{1: [1]}}, or choose from {', '.join(MAPS)}")
    for layer, sources in given.items():
        _check_within(layer, student, "student", f"teacher.map gives student layer {layer}")
        _check_sources(layer, sources, teacher)
    return {layer: tuple(sorted(given[layer])) for layer in sorted(given)}


def _check_sources(layer: int, sources: Sequence[int], teacher: int) -> None:
    gives = f"teacher.map gives student layer {layer}"
    if not sources:
        raise UserError(f"{gives} no teacher layer: name one or more, or leave student layer {layer} out")
    for source in sources:
        _check_within(source, teacher, "teacher", f"{gives} teacher layer {source}")
        if sources.count(source) > 1:
            raise UserError(f"{gives} teacher layer {source} more than once: name it once")


def _check_within(layer: int, count: int, whose: str, gives: str) -> None:
    if not 1 <= layer <= count:
        layers = "1 layer" if count == 1 else f"{count} layers"
        raise UserError(f"{gives}, but the {whose} has {layers}: count from 1, so that the last is {count}")
