"""The only error of this package."""

from __future__ import annotations


class PtxError(Exception):
    """PTX that cannot be translated; the message names the line and quotes the text."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line
