"""Numbers for people: three digits and a unit."""

from __future__ import annotations

__all__ = ["cores", "microseconds", "rate", "seconds", "size"]


def cores(n: int) -> str:
    """``2 cores``"""
    return f"{n} core" + ("" if n == 1 else "s")


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    for scale, unit in units:
        if value >= scale * 0.9995:
            number = value / scale
            return f"{number:,.0f} {unit}" if number >= 999.5 else f"{number:.3g} {unit}"
    return f"{value / units[-1][0]:.3g} {units[-1][1]}"


def seconds(value: float) -> str:
    """``2.86 µs``"""
    return _scaled(value, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def microseconds(value: float) -> str:
    """Without a unit: ``2.86``; all digits of 1000 and more."""
    micro = 1e6 * value
    return f"{micro:.0f}" if micro >= 999.5 else f"{micro:.3g}"


def size(value: float) -> str:
    """``64 KiB``; exact for whole multiples of the unit."""
    if value < 1024:
        return f"{value:g} B"
    return _scaled(value, ((float(1 << 30), "GiB"), (float(1 << 20), "MiB"), (1024.0, "KiB")))


def rate(value: float) -> str:
    """Bytes per second: ``3.1 GB/s``"""
    return _scaled(value, ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")))
