"""A corpus with planted low-quality documents, and a labeler for it: half of the text is code, half is noise of three kinds."""

import json
import random
import string
import sysconfig
from pathlib import Path

CHARACTERS = 2000

LABELER = '''\
"""Score a document by the share of its lines that are indented, times the share of its lines that occur once."""
import json, sys

for question in sys.stdin:
    row = json.loads(question)
    lines = [line for line in row["text"].splitlines() if line.strip()]
    indented = sum(line.startswith("    ") for line in lines) / max(len(lines), 1)
    once = len(set(lines)) / max(len(lines), 1)
    print(json.dumps({"id": row["id"], "score": round(indented * once, 2)}))
'''
PROMPT = "Is this Python code that a person wrote? Answer from 0 to 1.\n"


def code_documents(*, most_bytes: int) -> list[str]:
    """Parts of the standard library's sources at line ends, of about 2,000 characters, in an order that a seed gives."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(path for path in library.glob("*.py")) + sorted(library.glob("[a-h]*/*.py"))
    random.Random(0).shuffle(paths)
    found, size = [], 0
    for path in paths:
        part: list[str] = []
        for line in path.read_text("utf-8", errors="ignore").splitlines(keepends=True):
            part.append(line)
            if sum(map(len, part)) >= CHARACTERS:
                found.append("".join(part))
                size, part = size + len(found[-1]), []
                if size >= most_bytes:
                    return found
    return found


def noise_documents(number: int, *, words: list[str]) -> list[str]:
    """Random characters, random words, and one boilerplate many times, in turn."""
    generator = random.Random(1)
    return [_NOISE[place % len(_NOISE)](generator, words) for place in range(number)]


def _characters(generator: random.Random, _words: list[str]) -> str:
    return "".join(generator.choices(string.printable[:95] + "\n", k=CHARACTERS))


def _words(generator: random.Random, words: list[str]) -> str:
    lines = (" ".join(generator.choices(words, k=8)) for _ in range(CHARACTERS // 60))
    return "\n".join(lines) + "\n"


def _boilerplate(generator: random.Random, _words: list[str]) -> str:
    line = f"Copyright {generator.randrange(1990, 2030)} Example Inc. All rights reserved. Do not copy.\n"
    return line * (CHARACTERS // len(line))


_NOISE = (_characters, _words, _boilerplate)


def write_planted(folder: Path, *, code_bytes: int, held_out_bytes: int = 0) -> None:
    """Write `corpus.jsonl` (half code, half noise), `held-out.jsonl` (code), `label.py` and `prompt.txt` into a folder."""
    code = code_documents(most_bytes=code_bytes + held_out_bytes)
    held_out, size = list[str](), 0
    while size < held_out_bytes:
        held_out.append(code.pop())
        size += len(held_out[-1])
    words = " ".join(code[:100]).split()
    rows = [*((text, True) for text in code), *((text, False) for text in noise_documents(len(code), words=words))]
    random.Random(2).shuffle(rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in (("corpus", rows), ("held-out", [(text, True) for text in held_out])):
        lines = (json.dumps({"text": text, "is_code": is_code}) + "\n" for text, is_code in texts)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "label.py").write_text(LABELER)
    (folder / "prompt.txt").write_text(PROMPT)
