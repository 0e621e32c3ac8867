"""Strict YAML: line numbers in errors, no duplicate or unknown keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import AfterValidator, AwareDatetime, BaseModel, ValidationError

from marin_scaling.errors import MarinScalingError
from marin_scaling.files import read_bytes
from marin_scaling.printable import (
    FIRST_YEAR,
    LAST_YEAR,
    MESSAGE_LINES,
    NUMBER_CHARACTERS,
    YAML_BYTES,
    quoted,
)
from marin_scaling.strict_model import Fault, Part, faults_of

MOST_VALUES = 100_000
"""Values in one file after expanding aliases, 64 characters of text counted as one; a few kilobytes of aliases can expand to
more than fits in memory."""

Refused = Callable[[str | tuple[str, ...]], MarinScalingError]
"""Makes the error to raise from lines, one per fault."""


class PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader, but 3e-4 is a number, and numbers have bounded length."""

    def construct_short_number(self, node: yaml.ScalarNode) -> int | float:
        """Return the number in a node; refuse long ones unparsed."""
        if len(node.value) > NUMBER_CHARACTERS:
            found = f"a number of {len(node.value)} characters, more than {NUMBER_CHARACTERS}"
            raise yaml.MarkedYAMLError(problem=found, problem_mark=node.start_mark)
        read = self.construct_yaml_int if node.tag.endswith(":int") else self.construct_yaml_float
        number: int | float = read(node)
        return number


for _kind in ("int", "float"):
    PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", PlainLoader.construct_short_number)
PlainLoader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))


def _in_our_time(moment: datetime) -> datetime:
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"must be a time from {FIRST_YEAR} to {LAST_YEAR}")
    return moment


Moment = Annotated[datetime, AfterValidator(_in_our_time)]
"""Time in a file; the first and last year of the calendar are excluded, since they overflow in some zones."""
AwareMoment = Annotated[AwareDatetime, AfterValidator(_in_our_time)]
"""Time in a file with a time zone."""
Document = TypeVar("Document", bound=Part)


def read_part(path: Path, model: type[Document], *, noun: str, refused: Refused) -> Document:
    """Read the document in a YAML file; `noun` describes it, as in "a ladder"."""
    document, node = _load(path, noun=noun, refused=refused)
    return _validated(document, node, model, path=path, noun=noun, refused=refused)


def read_yaml(path: Path, model: type[Document], *, noun: str, refused: Refused) -> Document:
    """Read a document whose `name` must be that of the file."""
    document, node = _load(path, noun=noun, refused=refused)
    found = _validated(document, node, model, path=path, noun=noun, refused=refused)
    name = document.get("name")
    if name != path.stem:
        line = _line_of(node, ("name",))
        raise refused(f"{path}, line {line}: name: {quoted(repr(name))} must be the file's name, {path.stem!r}.")
    return found


def _validated(
    document: dict[Any, Any], node: yaml.Node | None, model: type[Document], *, path: Path, noun: str, refused: Refused
) -> Document:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        whole, most = noun.split()[-1], MESSAGE_LINES - 1
        faults = faults_of(error, document, whole=whole, keys=_keys(model), with_values=False, most=most)
        said = [(each.place, f"{each.message}{_meaning(model, each)}") for each in faults]
        lines = (f"{path}, line {_line_of(node, place)}: {message}" for place, message in said)
        raise refused(tuple(line if line.endswith("?") else f"{line}." for line in lines)) from error


def _load(path: Path, *, noun: str, refused: Refused) -> tuple[dict[Any, Any], yaml.Node | None]:
    raw = read_bytes(path)
    if len(raw) > YAML_BYTES:
        raise refused(f"{path} has {len(raw)} bytes, more than {YAML_BYTES}.")
    try:
        loader = PlainLoader(raw.decode("utf-8"))
        node = loader.get_single_node()
        _refuse_too_many(path, node, refused)
        document = loader.construct_document(node) if node else None
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: not UTF-8, or an invalid date
        raise refused(f"{path} is not YAML: {_yaml_reason(error)}.") from error
    if not isinstance(document, dict):
        found = "it is empty" if document is None else f"it is {type(document).__name__}, not a mapping of keys"
        raise refused(f"{path} does not hold {noun}: {found}.")
    _refuse_key_twice(path, node, refused)
    return document, node


def _meaning(model: Any, fault: Fault) -> str:
    """Return the meaning of a missing key in brackets, from the docstring below its field; empty for another fault."""
    field, is_missing = None, fault.message.endswith(": field required")
    for step in (each for each in fault.place if isinstance(each, str) and is_missing):
        field = getattr(model, "model_fields", {}).get(step)
        parts = (field.annotation, *get_args(field.annotation)) if field else ()
        model = next((each for each in parts if hasattr(each, "model_fields")), None)
    meaning = " ".join(((field and field.description) or "").split()).rstrip(".")
    return f" ({meaning})" if meaning else ""


def _keys(model: type[BaseModel]) -> set[str]:
    """Return all key names anywhere in the document."""
    schema = model.model_json_schema()
    return {key for table in (schema, *schema.get("$defs", {}).values()) for key in table.get("properties", {})}


def _line_of(node: yaml.Node | None, location: Sequence[int | str]) -> int:
    """Return the line of the deepest key on the path that the file has (for a missing key, the line of its section)."""
    line = node.start_mark.line + 1 if node else 1
    for step in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
            if found is None:  # a missing key, or pydantic's name of a kind
                continue
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line


def _refuse_too_many(path: Path, node: yaml.Node | None, refused: Refused) -> None:
    if _values(node, {}) > MOST_VALUES:
        found = f"more than {MOST_VALUES} values, with its aliases (`*name`) written out"
        raise refused(f"{path} expands to {found}; does an alias contain itself?")


def _values(node: yaml.Node | None, counts: dict[int, int]) -> int:
    """Count the values of a node; one that contains itself has too many."""
    if id(node) not in counts:
        counts[id(node)] = MOST_VALUES  # for a node that contains itself
        own = 1 + len(node.value) // 64 if isinstance(node, yaml.ScalarNode) else 1
        counts[id(node)] = own + sum(_values(inner, counts) for inner in _inner(node))
    return counts[id(node)]


def _inner(node: yaml.Node | None) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _refuse_key_twice(path: Path, node: yaml.Node | None, refused: Refused) -> None:
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # through another alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line, name = key.start_mark.line + 1, str(key.value)
                if name in lines:
                    raise refused(f"{path}, line {line}: duplicate key {quoted(name)}, first in line {lines[name]}.")
                lines[name] = line
                waiting.append(value)


def _yaml_reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def with_value(text: str, place: tuple[str, ...], value: str) -> str:
    r"""Return the text of a YAML file with the value of a key set, and everything else as it was.

    `place` leads to the key through mappings that exist; a missing key is added at the end of the last one. `value` is YAML in
    flow style: a scalar, or a mapping in braces.

    >>> print(with_value("name: a  # short\ndata:\n  files: x\n", ("data", "mix"), "{web: 1}"))
    name: a  # short
    data:
      files: x
      mix: {web: 1}
    <BLANKLINE>
    """
    node: Any = yaml.compose(text, Loader=PlainLoader)
    for step in place[:-1]:
        node = next(each for key, each in node.value if key.value == step)
    found = next((each for key, each in node.value if key.value == place[-1]), None)
    if found is not None:
        start = text.rindex(":", 0, found.start_mark.index) + 1  # a block may begin in the column of its key
        return f"{text[:start]} {value}{text[_end_of(found) :]}"
    end = _end_of(node)
    if node.flow_style:
        return f"{text[: end - 1].rstrip()}{', ' if node.value else ''}{place[-1]}: {value}{text[end - 1 :]}"
    rest = text.find("\n", end)  # a comment may follow the last value
    end = len(text) if rest < 0 else rest
    return f"{text[:end]}\n{' ' * node.start_mark.column}{place[-1]}: {value}{text[end:]}"


def _end_of(node: Any) -> int:
    """Return the index after a node's last character; a block's own mark lies before the next key."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)
