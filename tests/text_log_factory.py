"""Text logs of a run as Megatron-LM and MaxText print them: 1,000 steps, a line every 100 steps, evaluations."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from outside_factory import LOSS, RUN, TOKENS

STEPS = 1000
SEQUENCE, BATCH = 2000, round(TOKENS / STEPS / 2000)
RULER = "-" * 100
TIME = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
"""Time of each line of Megatron-LM, which names no zone."""


def megatron_settings(*, run: str = "", steps: int = STEPS) -> list[str]:
    """The arguments that Megatron-LM prints at a start."""
    return [
        "------------------------ arguments ------------------------",
        "  lr .............................................. 0.0003",
        f"  seq_length ...................................... {SEQUENCE}",
        f"  train_iters ..................................... {steps}",
        f"  wandb_exp_name .................................. {run}",
        "  wandb_project ................................... ",
        "-------------------- end of arguments ---------------------",
        "> building GPT2BPETokenizer tokenizer ...",
    ]


def megatron_step(step: int, loss: object, *, steps: int = STEPS, time: str = TIME) -> str:
    """A training line."""
    fields = {
        "consumed samples": f"{step * BATCH:12d}",
        "elapsed time per iteration (ms)": 512.3,
        "learning rate": "3.000E-04",
        "global batch size": f"{BATCH:5d}",
        "lm loss": loss,
        "loss scale": 1.0,
        "grad norm": 0.123,
        "number of skipped iterations": "  0",
    }
    return f" [{time}] iteration {step:8d}/{steps:8d} |" + "".join(f" {name}: {value} |" for name, value in fields.items())


def megatron_evaluation(step: int, loss: object, *, on: str = "") -> list[str]:
    """An evaluation between rulers."""
    return [RULER, f" validation loss at iteration {step}{on} | lm loss value: {loss} | lm loss PPL: 1.044232E+01 | ", RULER]


def megatron_log(*, loss: float = LOSS, run: str = RUN, until: int = STEPS) -> list[str]:
    """A whole log; the loss falls to the given one."""
    lines = megatron_settings(run=run)
    for step in range(100, until + 1, 100):
        lines.append(megatron_step(step, f"{loss + (STEPS - step) / 1000:.6E}"))
        if step % 500 == 0:
            lines += megatron_evaluation(step, f"{loss + (STEPS - step) / 1000:.6E}")
    return lines


def maxtext_settings(*, run: str = RUN) -> list[str]:
    """Some of the settings that MaxText prints at a start, in the order of their names."""
    settings = {
        "base_emb_dim": 2048,
        "global_batch_size_to_train_on": BATCH,
        "max_target_length": SEQUENCE,
        "run_name": run,
        "steps": STEPS,
    }
    return [f"I1126 08:13:33.767627 139 pyconfig.py:465] Config param {name}: {value}" for name, value in settings.items()]


def maxtext_step(step: int, loss: object) -> str:
    """A training line."""
    speed = "seconds: 1.234, TFLOP/s/device: 123.4, Tokens/s/device: 4567.8"
    return f"completed step: {step}, {speed}, total_weights: 65536, loss: {loss}"


def maxtext_log(*, loss: float = LOSS, run: str = RUN, until: int = STEPS) -> list[str]:
    """A whole log; steps count from 0."""
    lines = maxtext_settings(run=run)
    for step in range(99, until, 100):
        lines.append(maxtext_step(step, f"{loss + (STEPS - 1 - step) / 1000:.3f}"))
        if step % 500 == 499:
            lines += ["Completed eval step 0", f"eval metrics after step: {step}, loss={loss:.3f}, total_weights=75264.0"]
    return lines


def write(path: Path, *lines: str) -> Path:
    """A file of these lines."""
    path.write_text("\n".join(lines) + "\n")
    return path
