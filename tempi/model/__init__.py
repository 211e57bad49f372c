"""Python side of the calibrated model: measured points, their storage, and the tables made from them.

`peers` names the classes of ranks, `grid` lists the points to measure, `samples` decides when a point has
enough samples, `store` keeps every raw sample, `tables` builds the compact file that the engine maps,
`predict` asks the engine which method it would choose with such a file. The measuring code is in
``tempi.calibration``.
"""
