"""PTX text to tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ._errors import PtxError


@dataclass(frozen=True, slots=True)
class Token:
    """One word of PTX: kind is name, number, string or the punctuation itself."""

    kind: str
    text: str
    line: int


TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\r\f]+ | //[^\n]* | \.(?:loc|file)\b[^\n]*)
  | (?P<newline>\n)
  | (?P<comment>/\*.*?\*/)
  | (?P<number>0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16} | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U? | \d+\.\d+ | \d+U?)
  | (?P<name>[A-Za-z_$%.][\w$%.]*(?:::[\w.]+)*)
  | (?P<string>"[^"\n]*")
  | (?P<mark>[][{}(),;:=@!|+<>*/&-])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a module, without comments and without .loc and .file lines."""
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise PtxError(line, f"cannot read {text[at : at + 20]!r}")
        kind, word = match.lastgroup or "", match.group()
        if kind in ("number", "name", "string"):
            yield Token(kind, word, line)
        elif kind == "mark":
            yield Token(word, word, line)
        line += word.count("\n")
        at = match.end()


def integer(text: str) -> int:
    """The value of an integer literal."""
    digits = text.rstrip("U")
    return int(digits, 0) if digits[:1] != "0" or not digits.isdigit() else int(digits, 8)
