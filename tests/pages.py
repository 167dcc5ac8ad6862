"""The pages of the documentation, and the Python on them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


DOCS = ROOT / "docs"


BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[a-z0-9_ ]+) -->\n)?```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?",
    re.M | re.S,
)
"""A block of Python, perhaps with a mark above it and, below it, what it prints."""


NUMBER = re.compile(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?\*?")


def blocks(page):
    """(line, mark or None, code, shown output or None) of each block of Python."""
    text = page.read_text(encoding="utf-8")
    found = [
        (text.count("\n", 0, m.start("code")) + 1, m["mark"], m["code"], m["output"]) for m in BLOCK.finditer(text)
    ]
    assert len(found) == text.count("```python"), f"{page.name}: a block is not closed or indented"
    return found


def words(text):
    """The text without its numbers and widths: those may differ in the last digits from machine to machine."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.strip().splitlines()]
