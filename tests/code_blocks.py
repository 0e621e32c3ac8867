"""The runnable blocks of a Markdown page, in order: Python blocks, and shell blocks that are marked, with what they print."""

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"^```python\n(?P<python>.*?)^```$"
    r"|^<!-- runnable -->\n```bash\n(?P<bash>.*?)^```$(?:\n\n<!-- prints -->\n```text\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """One block; `prints` is what its standard output must be, or None where the page does not say."""

    page: Path
    line: int
    language: str
    code: str
    prints: str | None


def code_blocks(page: Path) -> list[CodeBlock]:
    """All runnable blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        CodeBlock(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language="python" if found["python"] is not None else "bash",
            code=found["python"] if found["python"] is not None else found["bash"],
            prints=found["prints"],
        )
        for found in _BLOCK.finditer(text)
    ]
