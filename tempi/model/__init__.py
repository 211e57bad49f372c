"""The calibrated model's Python side: what is measured, how it is stored, and the tables made of it.

`peers` names the classes of ranks, `grid` says which points are measured, `samples` when a point has
been measured enough, `store` keeps every raw sample, `tables` makes the compact file that the engine
maps, `predict` asks the engine what it would choose by such a file. Measuring itself is in
``tempi.calibration``.
"""
