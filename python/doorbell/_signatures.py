"""Signatures of functions that pass their arguments on, for help() and for tools."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any


def show(function: Any, of: Callable[..., Any], without: int, answer: Any = None, first: tuple[str, ...] = ()) -> None:
    """Gives `function` the parameters of another one without its first ones, and in their place `first`; and what it returns."""
    shown = signature(of)
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in first] + list(shown.parameters.values())[without:]
    function.__signature__ = shown.replace(parameters=parameters, return_annotation=shown.return_annotation if answer is None else answer)
    # help() looks for the signature there, and would find the other one's.
    function.__dict__.pop("__wrapped__", None)
