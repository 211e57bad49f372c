"""``tempi explain``: shows a datatype's layout and the passes that make it canonical."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tempi.cli._output import json_option, write_json
from tempi.cli._pictures import need_matplotlib
from tempi.model.peers import BY_WORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType

    from tempi.cli._predicted import Forecast
    from tempi.expression import State
    from tempi.layout import Box, Dim, Layout

__all__ = ["explain"]

_MOST_BOXES = 12  # boxes shown of one state
_WHAT = {
    "decode": "as written",
    "elide": "dimensions of count 1 removed",
    "fold": "a dense inner dimension joined the run",
    "flatten": "two dimensions with compatible strides became one",
    "merge": "a box that continues the previous one joined it",
    "join": "equal boxes at equal spacing became a dimension",
    "table": "regular parts of a table became dimensions; the rest is the faster kind of table",
    "derive": "rebuilt from the sequence of its runs",
}


def _bytes(n: int) -> str:
    return f"{n:,} B"


def _dim_text(dim: Dim) -> str:
    return f"{dim.count:,} x (memory {dim.stride:+,}, packed +{dim.packed_stride:,})"


def _run_text(box: Box) -> str:
    if box.run:
        return f"{box.run:,}"
    assert box.table is not None
    assert box.table.lengths is not None
    return f"{int(box.table.lengths.min()):,} to {int(box.table.lengths.max()):,}"


def _nest_text(box: Box) -> str:
    parts = [_dim_text(dim) for dim in box.dims]
    if box.table is not None:
        level = sum(dim.packed_stride > int(box.table.packed[-1]) for dim in box.dims)
        parts.insert(level, f"table of {len(box.table):,}")
    return "\n".join(parts) or "one run"


def _boxes_table(state: State) -> RenderableType:
    from rich.table import Table

    layout = state.layout
    title = f"[bold]{state.name}[/]: {_WHAT.get(state.name, '')}"
    table = Table(title=title, title_justify="left", title_style="", header_style="", show_lines=False)
    for name in ("offset", "packed at", "run"):
        table.add_column(name, justify="right")
    table.add_column("repeated, outermost first")
    for box in layout.boxes[:_MOST_BOXES]:
        table.add_row(f"{box.offset:,}", f"{box.packed:,}", _run_text(box), _nest_text(box))
    if len(layout.boxes) > _MOST_BOXES:
        table.add_row("...", "...", "...", f"and {len(layout.boxes) - _MOST_BOXES:,} more boxes")
    return table


def _facts(layout: Layout, count: int) -> list[tuple[str, str]]:
    facts = [
        ("size", f"{_bytes(layout.size)} packed"),
        ("extent", f"{_bytes(layout.extent)}, from {layout.lb:,} to {layout.ub:,}"),
        (
            "touched",
            f"{_bytes(layout.true_extent)}, from {layout.true_lb:,} to {layout.true_ub:,}",
        ),
        ("runs", f"{layout.runs:,} contiguous pieces"),
        ("longest run", _bytes(layout.longest_run)),
        ("footprint", f"{_bytes(layout.footprint)} for the layout itself"),
    ]
    if layout.dense:
        facts.append(("dense", "any count of it is one contiguous run"))
    if count > 1:
        pieces = "1 piece" if layout.dense else f"up to {layout.runs * count:,} pieces"
        facts.append((f"count {count:,}", f"{_bytes(layout.size * count)} in {pieces}"))
    return facts


def _print(console: Console, text: str, states: list[State], count: int) -> None:
    from rich.table import Table

    from tempi import _draw

    layout = states[-1].layout
    console.print(f"[bold]{text}[/]", highlight=False)
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(layout, count):
        facts.add_row(name, value)
    console.print(facts)
    console.print()
    for state in states:
        console.print(_boxes_table(state), highlight=False)
    if layout.size * count == 0:
        console.print("\nNothing to draw: the type has no bytes.")
        return
    picture = _draw.grid(layout, count)
    console.print(
        f"\nMemory, one cell = {picture.cell:,.4g} B: 0 to z is first to last in the packed stream, "
        ". is not touched" + (", # is used more than once" if picture.crowded.any() else ""),
        highlight=False,
    )
    for line in _draw.text_rows(picture):
        console.print(f"  {line}", highlight=False, markup=False, no_wrap=True, overflow="crop")


def _save_png(path: str, text: str, layout: Layout, count: int, forecasts: Sequence[Forecast]) -> None:
    """Memory and packed stream; below them a row of bars for each of `forecasts`."""
    from matplotlib import pyplot as plt

    from tempi import _draw
    from tempi.cli import _predicted
    from tempi.model import methods

    if layout.size * count == 0:
        raise click.ClickException(f"--png {path}: the type has no bytes, so there is nothing to draw")
    colours = plt.get_cmap("viridis")
    heights = (2.9, 4.3, *(0.55 + 0.45 * len(methods.ways(each.prediction)) for each in forecasts if each.prediction))
    figure, axes = plt.subplots(
        len(heights), 1, figsize=(10, 0.8 + sum(heights)), height_ratios=heights, layout="constrained"
    )
    shown = text if len(text) <= 100 else text[:97] + "..."
    times = f", count {count:,}" if count > 1 else ""
    figure.suptitle(f"{shown}{times}\n{layout.size * count:,} bytes, {layout.runs:,} runs an element", fontsize=11)
    _draw.draw_mapping(axes[0], _draw.sample(layout, count), colours)
    image = _draw.draw_memory(axes[1], _draw.grid(layout, count, columns=128, rows=64), colours)
    figure.colorbar(image, ax=axes[1], label="position in the packed stream", ticks=[0, 1]).ax.set_yticklabels(
        ["first", "last"]
    )
    _predicted.draw(axes[2:], forecasts)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--png {path}: {error}") from error
    finally:
        plt.close(figure)


def _box_record(box: Box) -> dict[str, Any]:
    record: dict[str, Any] = {
        "offset": box.offset,
        "packed": box.packed,
        "run": box.run,
        "space": box.space,
        "dims": [[dim.count, dim.stride, dim.packed_stride] for dim in box.dims],
    }
    if box.table is not None:
        lengths = None if box.table.lengths is None else box.table.lengths.tolist()
        record["table"] = {
            "offsets": box.table.offsets.tolist(),
            "packed": box.table.packed.tolist(),
            "lengths": lengths,
        }
    return record


def _records(text: str, states: Iterable[State], count: int) -> Iterable[dict[str, Any]]:
    for state in states:
        layout = state.layout
        yield {
            "expression": text,
            "pass": state.name,
            "count": count,
            "size": layout.size,
            "lb": layout.lb,
            "extent": layout.extent,
            "true_lb": layout.true_lb,
            "true_ub": layout.true_ub,
            "runs": layout.runs,
            "longest_run": layout.longest_run,
            "dense": layout.dense,
            "footprint": layout.footprint,
            "boxes": [_box_record(box) for box in layout.boxes],
        }


@click.command()
@click.argument("expression")
@click.option("--count", type=click.IntRange(min=1), default=1, help="Elements of the message.")
@click.option(
    "--peer",
    type=click.Choice(list(BY_WORD)),
    help="Also show each method's predicted time for a message to a rank of this class, and how collectives copy it.",
)
@click.option(
    "--memory",
    type=click.Choice(["host", "device", "managed"]),
    default="host",
    show_default=True,
    help="With --peer: memory of the buffers.",
)
@click.option(
    "--png",
    type=click.Path(dir_okay=False),
    help="Draw memory and packed stream to this file; with --peer also the predicted times.",
)
@json_option
def explain(expression: str, count: int, peer: str | None, memory: str, png: str | None, json_file: str | None) -> None:
    """Show the layout of a datatype, before and after each pass that changed it.

    \b
    tempi explain 'subarray([258,258,258],[1,256,256],[1,1,1],DOUBLE)'
    tempi explain 'vector(100,1,128,hvector(4,1,4096,FLOAT))' --png vector.png
    tempi explain 'struct([2,1],[0,16],[INT,DOUBLE])' --count 3 --peer same-node

    Every MPI type constructor is available under its own name, with MPI's arguments.
    """
    from rich.console import Console

    from tempi.cli import _copy_ways, _predicted, _predicted_device
    from tempi.expression import parse

    if png is not None:
        need_matplotlib("tempi explain --png")
    datatype = parse(expression)
    states = datatype.states()
    if json_file is not None:
        predicted: Iterable[dict[str, Any]] = ()
        if peer is not None and memory == "host":
            predicted = (*_predicted.records(datatype, count, peer), *_copy_ways.records(datatype, count, peer))
        elif peer is not None:
            predicted = _predicted_device.records(datatype, count, peer, memory)
        write_json(json_file, [*_records(expression, states, count), *predicted])
    if json_file != "-":
        _print(Console(soft_wrap=False), expression, states, count)
        if peer is not None:
            click.echo()
            lines = (
                _predicted.lines(datatype, count, peer)
                if memory == "host"
                else _predicted_device.lines(datatype, count, peer, memory)
            )
            for line in lines:
                click.echo(line)
            if memory == "host":
                click.echo()
                for line in _copy_ways.lines(datatype, count, peer):
                    click.echo(line)
    if png is not None:
        forecasts = list(_predicted.predictions(datatype, count, peer)) if peer is not None and memory == "host" else []
        forecasts = [each for each in forecasts if each.prediction]
        _save_png(png, expression, states[-1].layout, count, forecasts)
        if json_file != "-":
            click.echo(f"\n{Path(png)} written")
