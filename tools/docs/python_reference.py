"""The reference of the Python interface, from signatures and docstrings, as Markdown; examples are those that the tests run.

Modules are imported, and nothing of theirs is called. Names that begin with an underscore are no part of the interface.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, is_typeddict

import marin_scaling
from marin_scaling.markdown import table

_WIDE = 100
_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def module_reference(name: str) -> str:
    """A section about one module: what it is, then each public function and class that it defines, in the module's order.

    >>> print(module_reference("tools.docs.python_reference").splitlines()[0])
    ## tools.docs.python_reference
    """
    module = importlib.import_module(name)
    return "\n\n".join([f"## {name}", docstring(module), *(part for one in _public(module) for part in _about(one))])


def home_of(name: str) -> str:
    """The module, without the package's name, that has a function of the package root.

    >>> home_of("mix")
    'forecast.mixture'
    """
    module: str = getattr(marin_scaling, name).__module__
    return module.removeprefix("marin_scaling.")


def docstring(described: Any) -> str:
    """The docstring, with its examples in blocks of code.

    >>> docstring(_with_example := type("Example", (), {"__doc__": "Adds.\\n\\n>>> 1 + 1\\n2"}))
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return _EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", inspect.getdoc(described) or "")


def _public(module: ModuleType) -> list[Any]:
    defined = [value for name, value in vars(module).items() if not name.startswith("_") and _is_defined_in(value, module)]
    return sorted(defined, key=lambda value: inspect.getsourcelines(value)[1])


def _is_defined_in(value: Any, module: ModuleType) -> bool:
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module.__name__


def _about(value: Any) -> Iterator[str]:
    yield f"### {value.__name__}"
    if inspect.isfunction(value):
        yield f"```py\n{_signature(value)}\n```"
        yield docstring(value)
        return
    yield docstring(value)
    if fields := _fields(value):
        is_said = any(meaning for _, _, meaning in fields)
        yield table(["field", "type", "meaning"], fields) if is_said else table(["field", "type"], [row[:2] for row in fields])
    yield from _members(value)


def _members(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"`{value.__name__}.{name}`: {docstring(member)}"
        elif inspect.isfunction(member):
            yield f"```py\n{_signature(member, within=value.__name__)}\n```\n\n{docstring(member)}"


def _fields(value: type) -> list[list[str]]:
    """Name, type and the string below each field of a dataclass or of a typed dictionary."""
    if dataclasses.is_dataclass(value):
        types = {each.name: each.type for each in dataclasses.fields(value)}
    elif is_typeddict(value):
        types = {name: each.__forward_arg__ for name, each in value.__annotations__.items()}
    else:
        return []
    said = _strings_below(value)
    return [[f"`{name}`", f"`{_type(each)}`", said.get(name, "")] for name, each in types.items()]


def _type(annotation: Any) -> str:
    return str(annotation).replace("|", "or")


def _strings_below(value: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def _signature(function: Any, *, within: str = "") -> str:
    signature = inspect.signature(function)
    name = f"{within}.{function.__name__}" if within else function.__name__
    returned = signature.return_annotation
    result = ")" if returned is inspect.Signature.empty else f") -> {returned}"
    parts = list(_parameters(signature))
    line = f"{name}({', '.join(parts)}{result}"
    return line if len(line) <= _WIDE else f"{name}(" + "".join(f"\n    {part}," for part in parts) + f"\n{result}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    named_only = False
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not named_only:
            named_only = True
            yield "*"
        named_only = named_only or each.kind is each.VAR_POSITIONAL
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"{stars}{each.name}: {each.annotation}{default}"
