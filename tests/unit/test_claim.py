"""A run has one trainer at a time, and a dead trainer claims nothing."""

import subprocess
import sys
from pathlib import Path

from marin_scaling.files import claim

HOLD = """
import sys, time
from pathlib import Path
from marin_scaling.files import claim
with claim(Path(sys.argv[1])) as is_ours:
    print(is_ours, flush=True)
    time.sleep(60)
"""


def test_another_process_cannot_claim_what_is_held(tmp_path: Path) -> None:
    """While one process holds a run another is refused; killed with -9, its claim is gone at once."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "True\n"
        with claim(tmp_path / "run") as is_ours:
            assert not is_ours
        holder.kill()
    with claim(tmp_path / "run") as is_ours:
        assert is_ours
