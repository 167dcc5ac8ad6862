"""``python docs/architecture_map.py`` writes the lists in ``architecture.md`` from the modules and contracts."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "elman"
MARKS = "<!-- {}: written by docs/architecture_map.py -->", "<!-- end of {} -->"


def sentence(path: Path) -> str:
    """First sentence of a module's docstring, with its roles as plain code and formulas."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    text = re.split(r"(?<=[a-z0-9)`])\.(?:\s|$)", " ".join(text.split()))[0].rstrip(".")
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r"(?::\w+)?:`~?([^`]*)`", r"`\1`", text)
    return re.sub(r"``([^`]*)``", r"`\1`", text)


def modules(folder: Path, depth: int = 0) -> list[str]:
    """A line each for the modules of a folder, and those of its sub-folders under theirs."""
    lines = []
    for path in sorted(folder.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        if (path / "__init__.py").is_file():
            lines += [
                f"{'  ' * depth}- **`{path.name}/`**: {sentence(path / '__init__.py')}",
                *modules(path, depth + 1),
            ]
        elif path.suffix == ".py" and path.stem != "__init__":
            lines.append(f"{'  ' * depth}- `{path.name}`: {sentence(path)}")
    return lines


def floors() -> list[str]:
    """Who may import whom, from the contracts that ``lint-imports`` checks."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = []
    for contract in settings["tool"]["importlinter"]["contracts"]:
        lines.append(f"- {contract['name']}" + (":" if contract["type"] == "layers" else "."))
        if contract["type"] == "layers":
            names = [re.sub(r"\w+", lambda m: f"`{m[0]}`", line) for line in contract["layers"]]
            lines += ["", *(f"  {i}. {line}" for i, line in enumerate(names, 1)), ""]
    return lines


def page() -> str:
    """The page with both lists as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("map", modules(SOURCE)), ("floors", floors())):
        first, last = (mark.format(name) for mark in MARKS)
        before, _, rest = text.partition(first)
        _, _, after = rest.partition(last)
        text = "\n".join([before + first, "", *lines, "", last]) + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
