"""What the site generates from the code: the annotated tree, the commands, the shipped recipes.

A page says where each goes by a comment such as <!-- tree -->.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "anydepth"
CORE = ROOT / "csrc"


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[a-z)`\d])\.\s", paragraph, maxsplit=1)[0].rstrip(".")
    return _in_cell(sentence)


def _in_cell(text: str) -> str:
    """For a table. In code a bar ends no cell, and a backslash before it would be shown."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("|", "\\|").replace("<", "&lt;") for part in parts)


def describe_module(path: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    if docstring is None and path.name == "__main__.py":
        return f"`python -m {'.'.join(path.parent.relative_to(ROOT / 'src').parts)}`"
    return _first_sentence(docstring or "")


def describe_core_file(path: Path) -> str:
    """The comment at the head of a C++ file or a script."""
    lines: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(("//", "/*", " *")):
            lines.append(line.strip("/* "))
        elif lines or not line.startswith("#"):
            break
    return _first_sentence("\n".join(lines))


def _files(paths: list[Path], describe: Callable[[Path], str]) -> Iterator[str]:
    yield from ("", "| file | what it does |", "| --- | --- |")
    for path in paths:
        yield f"| `{path.name}` | {describe(path)} |"


def annotated_tree() -> str:
    """A section for each room of the package and for the C++ core, a row for each file."""
    lines = ["### `anydepth/`", "", describe_module(PACKAGE / "__init__.py") + "."]
    lines += _files(sorted(path for path in PACKAGE.glob("*.py") if path.name != "__init__.py"), describe_module)
    for room in sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE):
        files = sorted(path for path in room.glob("*.py") if path.name != "__init__.py")
        lines += ["", f"### `{room.relative_to(PACKAGE)}/`", "", describe_module(room / "__init__.py") + "."]
        lines += _files(files, describe_module)
    lines += ["", "### `export/page/`", "", "The page: its scripts. `index.html` and `page.css` are the rest."]
    lines += _files(sorted((PACKAGE / "export" / "page").glob("*.js")), describe_core_file)
    core = sorted(
        path for path in CORE.rglob("*") if path.suffix in {".h", ".cpp", ".inl"} and "tests" not in path.parts
    )
    lines += ["", "### `csrc/`", "", "The C++ core of the native engine."]
    lines += _files(core, lambda path: describe_core_file(path) or f"implements `{path.with_suffix('.h').name}`")
    return "\n".join(lines)


def _help(text: str | None) -> str:
    return _in_cell(" ".join((text or "").split()))


def _verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from _verbs(below, (*words, name))
    elif not command.hidden:
        yield words, command


def command_reference() -> str:
    """Every verb with its arguments and options, as `--help` has them."""
    import typer

    from anydepth.cli import build_app

    lines: list[str] = []
    for words, command in _verbs(typer.main.get_command(build_app())):
        lines += [
            "",
            f"## {' '.join(words)}",
            "",
            _help(command.help),
            "",
            "| argument or option | meaning |",
            "| --- | --- |",
        ]
        for parameter in command.params:
            if getattr(parameter, "hidden", False) or parameter.name == "help":
                continue
            is_option = parameter.param_type_name == "option"
            name = " / ".join([*parameter.opts, *parameter.secondary_opts]) if is_option else parameter.name.upper()
            lines.append(f"| `{name}` | {_help(getattr(parameter, 'help', None))} |")
    return "\n".join(lines)


def shipped_recipes() -> str:
    """Every recipe in recipes/, in full."""
    lines: list[str] = []
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        lines += ["", f"## {path.name}", "", "```yaml", path.read_text("utf-8").rstrip(), "```"]
    return "\n".join(lines)


def contributing() -> str:
    """CONTRIBUTING.md without its heading, with links that hold inside docs."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("\n", 1)[1]
    return re.sub(r"\[docs/(.*?)\]\(docs/(.*?)\)", r"[\1](\2)", text)


def public_api() -> str:
    """A section for every name that `anydepth` exports, by mkdocstrings."""
    module = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    order = ("Translator", "Classifier", "load", "train")
    shown = sorted((name for name in names if not name.startswith("_")), key=lambda name: (*order, name).index(name))
    return "\n\n".join(f"::: anydepth.{name}" for name in shown)


GENERATED = {
    "api": public_api,
    "contributing": contributing,
    "tree": annotated_tree,
    "commands": command_reference,
    "recipes": shipped_recipes,
}


STACKED = {"recipe-keys.md", "reference/commands.md", "architecture.md"}  # pages whose tables of names stack on phones


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    for name, generate in GENERATED.items():
        marker = f"<!-- {name} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, generate())
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with the page's HTML."""
    return f'<div class="stacked">{html}</div>' if page.file.src_uri in STACKED else html
