"""The experiments in Marin's list of reports (`docs/reports/index.md`): titles, links and conclusions, by section.

Reads bullets as they stand there. The list says no outcome, so none is imported; an issue that stands there twice is one
experiment, a title without an issue that stands there twice is two. Links within the list's own site are left out
with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from marin_scaling.experiment.experiment import free_name

_HEADING = re.compile(r"(#{2,6})\s+(.*?)\s*")
_BULLET = re.compile(r"(\s*)[-*]\s+(.*)")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
_BADGE = re.compile(r"\[?!\[[^\]]*\]\([^)]*\)(?:\]\([^)]*\))?")
_ISSUE = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/issues/(\d+)")
_CONCLUSION = re.compile(r"conclusion:\s*(.+)", re.IGNORECASE)
_KINDS = (
    ("execution", "data_browser"),
    ("tracker", "wandb"),
    ("pull_request", "/pull/"),
    ("data", "huggingface.co/datasets/"),
    ("models", "huggingface.co/"),
)
_MANY = ("tracker", "data", "models", "other")


def report_list(text: str, name: str) -> Iterator[dict[str, Any]]:
    """A document for each experiment in the list, in its order."""
    found: dict[str, dict[str, Any]] = {}
    for topics, title, below in _items(text):
        document = _document(topics, title, below, source=f"list of reports {name.rpartition('/')[2]}")
        if "issue" not in document["links"]:
            document["name"] = free_name(document["name"], found)
        found[document["name"]] = _merged(found.get(document["name"]), document)
    yield from found.values()


def _items(text: str) -> Iterator[tuple[list[str], str, list[str]]]:
    """Section headings, the line of a bullet at the margin, and the bullets below it."""
    headings: dict[int, str] = {}
    item: tuple[list[str], str, list[str]] | None = None
    for line in text.splitlines():
        if match := _HEADING.fullmatch(line):
            if item:
                yield item
            item = None
            level = len(match[1])
            headings = {depth: words for depth, words in headings.items() if depth < level} | {level: _plain(match[2])}
        elif match := _BULLET.fullmatch(line):
            if match[1] and item:
                item[2].append(match[2])
                continue
            if item:
                yield item
            item = ([headings[level] for level in sorted(headings)], match[2], [])
        elif item and line.strip() and line[0].isspace():
            item = _continued(item, line.strip())
    if item:
        yield item


def _continued(item: tuple[list[str], str, list[str]], words: str) -> tuple[list[str], str, list[str]]:
    """With a line more of its last bullet."""
    headings, title, below = item
    if not below:
        return headings, f"{title} {words}", []
    return headings, title, [*below[:-1], f"{below[-1]} {words}"]


def _document(topics: list[str], title: str, below: list[str], *, source: str) -> dict[str, Any]:
    addresses = [address for line in (title, *below) for _, address in _LINK.findall(line)]
    links = _links(addresses + _issue_addresses(title))
    words = _plain(_BADGE.sub("", title)) or "without a title"
    issue = _ISSUE.match(links.get("issue", ""))
    said = [match[1] for line in below if (match := _CONCLUSION.fullmatch(_plain(line)))]
    name = f"marin-report-{issue[1]}" if issue else f"marin-report-{_slug(words)}"
    document = {
        "name": name,
        "title": words[:500],
        "topics": topics,
        "conclusion": " ".join(said) or None,
        "links": links,
        "source": source,
        "notes": [f"{name}: left out {each}, no address on the web" for each in addresses if not _is_address(each)],
    }
    return {key: value for key, value in document.items() if value is not None}


def _issue_addresses(title: str) -> list[str]:
    return [match[0] for match in _ISSUE.finditer(title)]


def _is_address(words: str) -> bool:
    return re.match(r"https?://", words) is not None


def _links(addresses: list[str]) -> dict[str, Any]:
    links: dict[str, Any] = {}
    for address in dict.fromkeys(filter(_is_address, addresses)):
        kind = "issue" if _ISSUE.match(address) else next((kind for kind, part in _KINDS if part in address), "other")
        if kind in _MANY:
            links.setdefault(kind, []).append(address)
        elif kind in links and links[kind] != address:
            links.setdefault("other", []).append(address)
        else:
            links[kind] = address
    return links


def _merged(first: dict[str, Any] | None, second: dict[str, Any]) -> dict[str, Any]:
    if first is None:
        return second
    addresses = [each for document in (first, second) for kind in document["links"].values() for each in _listed(kind)]
    links = _links(addresses)
    topics = list(dict.fromkeys([*first["topics"], *second["topics"]]))
    notes = [*first["notes"], *second["notes"]]
    said = "\n\n".join(dict.fromkeys(each["conclusion"] for each in (first, second) if "conclusion" in each))
    merged = {**second, **first, "links": links, "topics": topics, "notes": notes}
    return merged | ({"conclusion": said} if said else {})


def _listed(links: str | list[str]) -> list[str]:
    return [links] if isinstance(links, str) else links


def _plain(words: str) -> str:
    return " ".join(re.sub(r"\\(?=[\[\]*_`])", "", _LINK.sub(lambda match: match[1], words)).split())


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:80] or "none"
