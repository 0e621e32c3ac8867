"""Count the modules of this package that two commands enter: modules in which at least one function is called.

Run `python benchmarks/modules_entered.py` from the repository root; `--list` names the modules. Exits 1 above the limits.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "marin_scaling"
FIT = ["fit", "runs/delphi", "--predict", "1e23"]
MOST = {"fit": 30, "verify": 46}
"""Largest number of modules that each command may enter."""


def entered(arguments: list[str]) -> set[str]:
    """Return the modules that a command enters, by their paths in the package; its output is discarded."""
    from marin_scaling.cli.app import app

    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name not in ("<module>", "<lambda>") and not _belongs_to_import(frame):
            seen.add(frame.f_code.co_filename)

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.setprofile(note)
        try:
            app(arguments, standalone_mode=False)
        finally:
            sys.setprofile(None)
    return {str(Path(name).relative_to(PACKAGE)) for name in seen if Path(name).is_relative_to(PACKAGE)}


def _belongs_to_import(frame: FrameType) -> bool:
    """Return True for the body of a class and for a comprehension of a module, which run when their module is imported."""
    if frame.f_code.co_name.startswith("<") and frame.f_back is not None and frame.f_back.f_code.co_name == "<module>":
        return True
    return ("__module__" in frame.f_locals and "__qualname__" in frame.f_locals) or not frame.f_code.co_flags & 0x02


def main() -> bool:
    """Print the counts of `fit` and of `verify` of a new registration, with its refit; return True within the limits."""
    sys.path.insert(0, str(ROOT / "tests"))
    from fitted_registration import make_fitted_registration

    within = True
    with tempfile.TemporaryDirectory() as folder:
        registered = make_fitted_registration(Path(folder)).name
        for arguments, place in ((FIT, ROOT), (["verify", registered], Path(folder))):
            os.chdir(place)
            found, most = entered(arguments), MOST[arguments[0]]
            within &= len(found) <= most
            print(f"{len(found):3} modules entered by marin-scale {' '.join(arguments)}; limit {most}")
            if "--list" in sys.argv:
                print("\n".join(f"    {name}" for name in sorted(found)))
        os.chdir(ROOT)
    return within


if __name__ == "__main__":
    sys.exit(not main())
