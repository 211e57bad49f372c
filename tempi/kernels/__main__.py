"""``python -m tempi.kernels``: compiles all GPU kernels and lists the resources of each on each target."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import click

from tempi.kernels import _build, _compile
from tempi.kernels._table import ALL, TARGETS


def _table(usages: list[_compile.Usage]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    title = f"{len(ALL)} kernels: registers a thread on each target"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("kernel", no_wrap=True)
    for heading in (*TARGETS, "code", "shared", "spills"):
        table.add_column(heading.removeprefix("sm_"), justify="right")
    for kernel in ALL:
        of = {u.target: u for u in usages if u.kernel == kernel.name}
        registers = [str(of[target].registers) for target in TARGETS]
        code, shared = max(u.code for u in of.values()), max(u.shared for u in of.values())
        spills = sum(u.spill_loads + u.spill_stores for u in of.values())
        table.add_row(kernel.name, *registers, str(code), str(shared), str(spills))
    table.caption = "code, shared memory and spills in bytes, on the target that takes most"
    Console().print(table)


def _compile_into(folder: Path, quiet: bool) -> list[_compile.Usage]:
    """Writes all images and kernels.json to the folder, which changes only after success."""
    with tempfile.TemporaryDirectory() as work:
        ptx = Path(work) / _build.PTX

        def tell(name: str) -> None:
            if not quiet:
                click.echo(f"compiling {name}", err=True)

        ptx.write_text(_compile.compile_ptx(tell=tell))
        tell(f"{len(ALL)} kernels to machine code for {', '.join(TARGETS)}")
        usages = _compile.assemble(ptx)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _build.USAGE).unlink(missing_ok=True)
        for made in Path(work).iterdir():
            shutil.copy2(made, folder)
    _build.note(folder, [_compile.usage_row(u) for u in usages])
    return usages


@click.command(help="Compile the GPU kernels (no GPU is needed) and list registers, spills and sizes for each target.")
@click.option("--out", type=click.Path(path_type=Path), help="keep PTX, machine code and kernels.json in this folder")
@click.option("--json", "json_file", metavar="FILE", help="write the list as JSON to FILE; - is standard output")
@click.option("--quiet", is_flag=True, help="no progress, no table")
def main(out: Path | None, json_file: str | None, quiet: bool) -> None:
    try:
        if out is not None:
            usages = _compile_into(out, quiet)
        else:
            with tempfile.TemporaryDirectory() as scratch:
                usages = _compile_into(Path(scratch), quiet)
    except _compile.CompileError as error:
        raise click.ClickException(str(error)) from None
    if json_file:
        text = json.dumps([_compile.usage_row(u) for u in usages], indent=1) + "\n"
        if json_file == "-":
            sys.stdout.write(text)
        else:
            Path(json_file).write_text(text)
    elif not quiet:
        _table(usages)


if __name__ == "__main__":
    main(prog_name="python -m tempi.kernels")
