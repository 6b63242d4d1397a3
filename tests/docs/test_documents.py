"""What README and docs show is true: examples run, commands and keys exist, files and links are there, the site builds.

`bash` and `python` blocks are run, page by page and in order, in an empty folder with the repository's models and
recipes. `console` blocks, with a prompt before each command, are too long to run or show what came out once: their
commands are parsed. `text` blocks and those without a language are output, or commands of other programs.
"""

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import typer
import yaml
from made_runtime import make_runtime
from markdown_it import MarkdownIt

from anydepth.cli import build_app
from anydepth.config import Recipe
from anydepth.config.reading import read_recipe

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = MarkdownIt("commonmark").enable("table")
CLI = typer.main.get_command(build_app())
LANGUAGES = {"", "bash", "console", "python", "text", "yaml"}
RUN = {"bash", "python"}
OTHER_OPTIONS = {
    "--arms",
    "--check",
    "--help",
    "--install-completion",
    "--master-port",
    "--plot",
    "--standalone",
}  # of other programs


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    fences = (token for token in MARKDOWN.parse(page.read_text("utf-8")) if token.type == "fence")
    return [Block(page, token.map[0] + 1, token.info.strip(), token.content) for token in fences]


def inline_code(page: Path) -> Iterator[str]:
    for token in MARKDOWN.parse(page.read_text("utf-8")):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def links(page: Path) -> Iterator[str]:
    for token in MARKDOWN.parse(page.read_text("utf-8")):
        for child in token.children or ():
            if child.type in {"link_open", "image"}:
                yield child.attrs.get("href") or child.attrs["src"]


def shell_lines(block: Block) -> Iterator[str]:
    """The commands of a block, each on one line."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "bash":
        yield from lines
    elif block.language == "console":
        yield from (line[2:] for line in lines if line.startswith("$ "))


def anydepth_arguments(line: str) -> Iterator[list[str]]:
    """What `anydepth` is called with in a line of the shell, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    simple: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if set(word) <= set("<>"):
            next(words, None)
        elif set(word) <= set("|&;()"):
            simple.append([])
        else:
            simple[-1].append(word)
    for command in simple:
        if "anydepth" in command:
            yield command[command.index("anydepth") + 1 :]


def check_command(arguments: list[str], *, complete: bool) -> None:
    """Verb and options exist; if `complete`, nothing required is missing."""
    if arguments[:1] and arguments[0] in OTHER_OPTIONS:
        return
    command, rest = CLI, arguments
    while hasattr(command, "commands"):
        if not rest and not complete:
            return
        assert set(rest[:1]) & set(command.commands), f"anydepth {' '.join(arguments)}: no verb {rest[:1]}"
        command, rest = command.commands[rest[0]], rest[1:]
    if not complete:
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in rest if word.startswith("--")} <= options, f"anydepth {' '.join(arguments)}"
        return
    given, extra, _ = command.make_parser(typer.Context(command)).parse_args(list(rest))
    assert not extra, f"anydepth {' '.join(arguments)}: too many arguments: {extra}"
    for parameter in command.params:
        if parameter.required:
            value = given.get(parameter.name)
            assert value not in (None, ()), f"anydepth {' '.join(arguments)}: {parameter.name} is missing"


def check_recipe_changes(arguments: list[str]) -> None:
    """`anydepth train recipes/X.yaml --set ...` gives a valid recipe."""
    recipes = [ROOT / word for word in arguments if word.startswith("recipes/") and word.endswith(".yaml")]
    changes = [value for word, value in pairwise(arguments) if word == "--set"]
    if arguments[:1] == ["train"] and recipes:
        read_recipe(recipes[0], changes)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_shown_commands_exist(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: a block needs one of the languages {sorted(LANGUAGES)}"
        for line in shell_lines(block):
            for arguments in anydepth_arguments(line):
                check_command(arguments, complete=True)
                check_recipe_changes(arguments)
    options = {
        option
        for _, command in _verbs(CLI)
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for code in inline_code(page):
        if code.startswith("anydepth ") and not code.isupper():
            check_command([word for word in shlex.split(code)[1:] if word != "VERB"], complete=False)
        unknown = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code)) - options - OTHER_OPTIONS
        assert not unknown, f"{page.name}: `{code}` names options that no verb has: {unknown}"


def _verbs(command, words=()):
    if hasattr(command, "commands"):
        for verb, below in command.commands.items():
            yield from _verbs(below, (*words, verb))
    else:
        yield words, command


@pytest.mark.parametrize("page", [page for page in PAGES if any(b.language == "yaml" for b in blocks(page))], ids=name)
def test_recipe_snippets_are_valid(page):
    for block in blocks(page):
        if block.language == "yaml":
            snippet = yaml.safe_load(block.text)
            Recipe.model_validate({"data": {"train": {"source": "train.fr", "target": "train.en"}}} | snippet)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.language in RUN for b in blocks(p))], ids=name)
def test_examples_run(page, tmp_path, monkeypatch):
    for folder in ("models", "recipes"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    if any("anydepth_runtime" in block.text for block in blocks(page) if block.language == "python"):
        monkeypatch.syspath_prepend(make_runtime(tmp_path / "runtime"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks(page):
        if block.language == "bash":
            script = ["bash", "-euo", "pipefail", "-c", block.text]
            done = subprocess.run(script, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{block.place} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.language == "python" for b in blocks(p))], ids=name)
def test_python_imports_resolve(page):
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text, filename=block.place)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "anydepth":
                    module = importlib.import_module(node.module)
                    missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                    assert not missing, f"{block.place}: {node.module} has no {missing}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_files_exist(page):
    """Files that are named with a folder, such as `recipes/large.yaml`, are in the repository."""
    tops = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."} - {
        "demo",
        "data",
        "runs",
        "site",
        "docs",
    }
    for code in inline_code(page):
        path = code.split()[0] if code.strip() else ""
        if "/" in path and path.split("/")[0] in tops and not re.search(r"[*{<]", path):
            assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_links_outside_the_site_lead_somewhere(page):
    """MkDocs checks the links inside docs."""
    for link in links(page):
        path, _, anchor = link.partition("#")
        if "://" not in path:
            assert (ROOT / path).exists(), link
            if anchor:
                headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w\s-]", "", head).strip().lower().replace(" ", "-") for head in headings}


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").split()) < 1500


def test_every_picture_is_described():
    for page in PAGES:
        for description in re.findall(r"!\[([^\]]*)\]\(", page.read_text("utf-8")):
            assert len(description.split()) >= 3, f"{page.name}: a picture needs a text for those who cannot see it"


def test_every_file_has_its_clause_in_the_tree(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    hooks = importlib.import_module("hooks")
    rows = re.findall(r"^\| `(.*?)` \| (.*) \|$", hooks.annotated_tree(), re.MULTILINE)
    assert len(rows) > 100
    assert not [file for file, clause in rows if not clause.strip()]


def test_bars_in_code_are_shown_without_backslashes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    commands = importlib.import_module("hooks").command_reference()
    assert "`line ||| text ||| score`" in commands
    assert not [code for code in re.findall("`[^`]*`", commands) if "\\|" in code or "&lt;" in code]


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("material", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    outside = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)=["'](https?:)?//""")
    for page in (tmp_path / "site").rglob("*.html"):
        assert not outside.search(page.read_text("utf-8")), f"{page.name} needs another address to be read"
