"""Median and MAD: what one rank in many does changes neither."""

from __future__ import annotations

from typing import Sequence


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def spread(values: Sequence[float]) -> float:
    """The standard deviation of a normal distribution with this MAD."""
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values])
