"""The build backend: setuptools, with the kernels' compilers asked for only when they are needed.

They are some 300 MB to download. A build whose ``build/kernels`` is already made from these sources,
or that wants no kernels (TEMPI_NO_KERNELS=1), does without.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [  # what a backend is made of: PEP 517 and PEP 660
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[2]
MACHINES = ("x86_64", "aarch64")  # where NVIDIA's compiler wheels are


def _kernels() -> Any:
    spec = importlib.util.spec_from_file_location("tempi_kernels_build", ROOT / "tempi" / "kernels" / "_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compilers() -> list[str]:
    build = _kernels()
    if build.unwanted() or build.fresh(ROOT / "build" / "kernels"):
        return []
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return []
    return [*build.COMPILER, "click>=8", "rich>=13"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compilers()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compilers()]
