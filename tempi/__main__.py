"""``python -m tempi``: the command line."""

from __future__ import annotations

from tempi.cli.main import main

if __name__ == "__main__":
    main(prog_name="tempi")
