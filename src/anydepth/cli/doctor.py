"""`anydepth doctor`: checks the machine."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from anydepth.cli.options import results


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine: versions, cores, available engines, and what is slow."""
    from anydepth.export.doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(asdict(found), indent=1, ensure_ascii=False))
        return
    console = results()
    for title, rows in found.facts.items():
        console.print(f"[bold]{title}[/bold]")
        width = max(map(len, rows))
        for name, value in rows.items():
            console.print(f"  {name:{width}}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print("[bold]advice[/bold]" if found.advice else "no problems found")
    for line in found.advice:
        console.print(f"  - {line}", markup=False, highlight=False, soft_wrap=True)
