"""What is measured on a GPU: shapes, memory of known bytes, subjects, and the bars that they are held against."""

from __future__ import annotations
