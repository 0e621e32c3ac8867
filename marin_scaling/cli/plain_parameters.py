"""Words, paths and flags of the command line taken as typed, so that `marin-scale verify` starts within 0.3 s.

Typer (seen in 0.29) builds a pydantic adapter for each parameter of the command that runs, and importing pydantic costs
more than half of the start. Words, paths and flags without a rule of their own need none; all other parameters stay with Typer.
A Typer that keeps no adapters never asks for what is set here, and converts as it always did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

_KINDS: dict[Any, Callable[[Any], Any]] = {str: str, Path: Path, list[str]: str, bool: bool}
_RULES = ("exists", "writable", "resolve_path", "allow_dash", "path_type", "parser", "envvar")


class PlainGroup(TyperGroup):
    """Typer's group of commands, whose own parameters and whose commands' are taken as typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's parameters, `--help` among them."""
        return _as_typed(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _as_typed(command.get_params(ctx))
        return command


@dataclass(frozen=True, kw_only=True)
class _AsTyped:
    """Stands where Typer keeps its adapter; `coerce` is what it calls."""

    kind: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG002  # Typer's signature
        if value is None:
            return () if param.multiple else None
        return [self.kind(item) for item in value] if isinstance(value, list | tuple) else self.kind(value)


def _as_typed(parameters: Iterable[Any]) -> list[Any]:
    parameters = list(parameters)
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        kind = _KINDS.get(described.annotation) if described else None
        if described and kind and not _has_rule(described.parameter_info):
            parameter._runtime_param = _AsTyped(kind=kind)
    return parameters


def _has_rule(info: Any) -> bool:
    return any(getattr(info, rule, None) for rule in _RULES) or not (info.file_okay and info.dir_okay)
