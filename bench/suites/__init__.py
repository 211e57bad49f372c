"""One module per suite of ``tempi bench``: starts its workers, shows their records as a table and a picture."""

from __future__ import annotations
