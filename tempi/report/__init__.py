"""``tempi report``: one HTML page with what was calibrated, predicted, measured and counted.

`page` is HTML, `figures` arranges pictures (drawn by `tempi.model.plot` and here), `calibrated`, `measured`
and `counted` write a part of the page each, and `tempi.cli.report` reads the files and puts them together.
"""
