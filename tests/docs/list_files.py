"""docs/files.md: every file of the package, with the first sentence of its docstring."""

import ast
import re
import textwrap
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "anydepth"
HEAD = """# All files

Every file of the package, with the first sentence of its docstring. What the folders are for, and three walks through
them, is in [Architecture](architecture.md).
"""


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z`])", paragraph)[0]
    return sentence.rstrip(".:").replace("|", "\\|")


def list_files() -> str:
    lines = [HEAD]
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")}):
        lines.append(f"## {folder.relative_to(SOURCE.parent).as_posix()}\n")
        for path in sorted(folder.glob("*.py")):
            line = f"- `{path.name}`: {first_sentence(path)}"
            lines.append(
                textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(list_files(), end="")
