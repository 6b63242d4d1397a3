"""Options that say where long jobs run, and the runner they ask for."""

from typing import TYPE_CHECKING, Annotated

import typer

from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.infer.runner import Runner

RunnerName = Annotated[
    str,
    typer.Option("--runner", help="Where to translate: here, or ray: on a cluster or the cores of this machine."),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Of a Ray cluster, such as ray://head:10001, or auto.  [default: starts one here]", show_default=False
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Of the Ray that is started here.  [default: one per core]", show_default=False),
]


def runner_of(
    name: str,
    address: str | None,
    workers: int | None,
    device: str,
    threads: int | None,
    engine: str = "torch",
    quantize: str | None = None,
) -> "Runner":
    from anydepth.infer.runner import here

    if name == "ray":
        from anydepth.export.ray import RayRunner

        if engine == "auto":
            raise UserError("machines might take different engines with auto: name one, such as --engine native")
        if address is not None and workers is not None:
            raise UserError("a cluster has its own workers: leave out --workers, or --address")
        return RayRunner(address, workers, device, threads or 1, engine, quantize).started()
    if name != "here":
        raise UserError(f"there is no runner {name!r}; choose one of here, ray")
    if address is not None or workers is not None:
        raise UserError("--address and --workers are for --runner ray")
    return here
