"""A self-contained HTML page: text, tables and pictures, with no external resources."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Page", "bullets", "details", "escape", "paragraph", "picture", "table"]

#: Makes the browser fetch nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1b1b1b; background: #fff;
  max-width: 1180px; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; margin: 0.6rem 0 0; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 0.4rem; border-top: 1px solid #ccc; padding-top: 1.2rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.3rem; }
p, li { max-width: 50rem; } .quiet { color: #555; }
nav ul { list-style: none; padding: 0; margin: 0.6rem 0; display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; }
a { color: #00508c; } a:focus-visible, summary:focus-visible { outline: 3px solid #00508c; outline-offset: 2px; }
figure { margin: 1rem 0 1.4rem; } figure img { max-width: 100%; height: auto; display: block; }
figcaption { color: #444; font-size: 0.92rem; max-width: 56rem; margin-top: 0.3rem; }
.scroll { overflow-x: auto; margin: 0.6rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.2rem 0; }
th, td { padding: 0.2rem 0.7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; } tbody th { font-weight: 500; }
details { margin: 0.4rem 0; } summary { cursor: pointer; color: #00508c; }
.note { border-left: 4px solid #b85c00; background: #fff6ec; padding: 0.5rem 0.9rem; max-width: 50rem; }
@media print { details { display: block; } nav { display: none; } }
"""


def paragraph(text: str, kind: str = "") -> str:
    """Plain text; `kind` is "", "quiet" or "note"."""
    return f'<p class="{kind}">{escape(text)}</p>\n' if kind else f"<p>{escape(text)}</p>\n"


def bullets(texts: Iterable[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{escape(text)}</li>\n" for text in texts) + "</ul>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", words: int = 1) -> str:
    """The first column is the row's name; columns after the first `words` are numbers, right-aligned."""
    kinds = ["" if place < words else ' class="number"' for place in range(len(head))]
    made = [f"<caption>{escape(caption)}</caption>"] if caption else []
    cells = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for kind, text in zip(kinds, head, strict=True))
    made.append(f"<thead><tr>{cells}</tr></thead>\n<tbody>")
    for row in rows:
        name = f'<th scope="row">{escape(row[0])}</th>'
        rest = "".join(f"<td{kind}>{escape(text)}</td>" for kind, text in zip(kinds[1:], row[1:], strict=True))
        made.append(f"<tr>{name}{rest}</tr>")
    return '<div class="scroll"><table>' + "\n".join(made) + "</tbody></table></div>\n"


def details(summary: str, body: str) -> str:
    """A section that is collapsed until opened."""
    return f"<details><summary>{escape(summary)}</summary>\n{body}</details>\n"


def picture(png: bytes, alt: str, caption: str) -> str:
    """An embedded picture; `alt` is the text alternative."""
    data = base64.b64encode(png).decode()
    image = f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}\n<figcaption>{escape(caption)}</figcaption></figure>\n"


class Page:
    """Sections in the order of their addition."""

    def __init__(self, title: str, subtitle: str) -> None:
        self._title, self._subtitle = title, subtitle
        self._sections: list[tuple[str, str, str]] = []

    def add(self, name: str, title: str, body: str) -> None:
        """Adds a section; `name` is its anchor in the URL."""
        self._sections.append((name, title, body))

    def html(self) -> str:
        links = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in self._sections)
        body = "".join(
            f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{text}</section>\n'
            for name, title, text in self._sections
        )
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self._title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f'<header>\n<h1>{escape(self._title)}</h1>\n<p class="quiet">{escape(self._subtitle)}</p>\n'
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n</header>\n<main>\n{body}</main>\n</body>\n</html>\n'
        )
