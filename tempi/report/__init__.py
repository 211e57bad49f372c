"""``tempi report``: one HTML page of calibrations, predictions, measurements and counters.

`page` writes HTML, `figures` arranges pictures (drawn by `tempi.model.plot` and here), `calibrated`, `measured`
and `counted` write one part of the page each, and `tempi.cli.report` reads the files and assembles it.
"""
