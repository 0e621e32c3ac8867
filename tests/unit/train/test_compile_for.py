"""Training steps of tiny ladders, compiled for TPU slices that are not here."""

import importlib.util
from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale

from marin_scaling.errors import UsageError
from marin_scaling.train.compile_for import CompiledLadder, CompiledShape, described_slice
from marin_scaling.train.session import load_ladder

LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 1e10, hidden_dims: [8]}
  - {budget_flops: 2e10, hidden_dims: [8]}
target: {budget_flops: 1e11}
evaluation: {windows: 64}
"""
LARGE = "{name: large, base: quickstart, constants: {batch_size: 16000}}"

is_here = all(importlib.util.find_spec(module) for module in ("levanter", "libtpu"))
compiles = pytest.mark.skipif(not is_here, reason="the train and tpu extras are not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ladder file, and the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(LADDER)
    return tmp_path


def compiled(*only: str, slice_name: str = "v5p:2x2x1") -> tuple[CompiledLadder, list[object]]:
    """The compiled ladder, and what was told on the way."""
    told: list[object] = []
    return load_ladder("tiny.yaml").compile_for(slice_name, only=only, on_message=told.append), told


@pytest.mark.train
@compiles
def test_runs_of_one_shape_are_compiled_once_and_then_cached(folder: Path) -> None:
    """XLA counts the FLOPs of plain attention as the plan does, up to what is no matrix product."""
    first, told = compiled("1e10", "2e10")
    [shape] = first.shapes
    assert (shape.runs, len(told)) == (("1e10/8", "2e10/8"), 1)
    assert 0 < shape.needed_bytes < shape.available_bytes == 95e9
    assert first.fits
    assert shape.xla_flops == pytest.approx(shape.counted_flops, rel=0.3)
    assert list(first.frame["runs"]) == [["1e10/8", "2e10/8"]]
    again, told = compiled("1e10", "2e10")
    assert (again, told) == (first, [])


@pytest.mark.train
@compiles
def test_a_mixture_is_compiled_for_several_hosts(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(LADDER.replace("quickstart", "quickstart-moe"))
    found, _ = compiled("1e10", slice_name="v5p:2x2x2")
    assert found.slice.devices == 8
    assert found.fits


@pytest.mark.train
@compiles
def test_a_mesh_of_the_ladder_file_is_compiled(folder: Path) -> None:
    """With the width divided by one axis, and heads and MLPs by the other; another mesh is compiled again."""
    (folder / "tiny.yaml").write_text(LADDER + "hardware: {per_run: {mesh: {data: 2, model: 2}}}\n")
    found, told = compiled("1e10")
    assert found.fits
    assert found.document["mesh"] == {"data": 2, "model": 2, "expert": 1}
    assert found.shapes[0].xla_flops == pytest.approx(found.shapes[0].counted_flops, rel=0.5)
    (folder / "tiny.yaml").write_text(LADDER)
    assert len(told) == len(compiled("1e10")[1]) == 1


@pytest.mark.train
@compiles
def test_a_step_that_xla_refuses_does_not_fit(folder: Path) -> None:
    """Both numbers and settings are named, and the exit status is 1."""
    (folder / "large.yaml").write_text(LARGE)
    wider = LADDER.replace("quickstart", "large.yaml").replace("[8]", "[128]")
    (folder / "tiny.yaml").write_text(wider.replace("e10", "e14").replace("1e11", "1e16"))
    done = marin_scale("ladder", "tiny.yaml", "--compile-for", "v5e:1x1", "--only", "1e14", cwd=folder)
    [shape] = compiled("1e14", slice_name="v5e:1x1")[0].shapes
    assert done.returncode == 1
    assert shape.needed_bytes > shape.available_bytes > 15e9
    assert shape.step_seconds_at_least is None
    for fact in (f"{shape.needed_bytes / 1e9:.4g} GB", f"{shape.available_bytes / 1e9:.4g} GB", "compute."):
        assert fact in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is not None, reason="the tpu extra is installed")
@pytest.mark.skipif(importlib.util.find_spec("levanter") is None, reason="the train extra is not installed")
def test_the_missing_extra_is_named(folder: Path) -> None:
    assert_refused(marin_scale("ladder", "tiny.yaml", "--compile-for", "v5p:2x2x1", cwd=folder), '"tpu" extra')


@pytest.mark.parametrize(
    ("name", "devices", "memory"), [("v4:2x2x4", 16, 32e9), ("tpu7x:2x2x1", 8, 96e9), ("v6e:1x1", 1, 32e9)]
)
def test_devices_of_a_slice_are_those_that_jax_names(name: str, devices: int, memory: float) -> None:
    """A chip of v4 is one device, and a chip of TPU7x is two with half of its memory."""
    found = described_slice(name)
    assert (found.devices, found.memory_bytes) == (devices, memory)


@pytest.mark.parametrize(
    "name", ["", "v5p", "h100", "h100:2x2", "v5p:3x1", "v5p:2x2", "v5p:2x0x2", "v5e:3x2", ":2x2", "v5p:2x2x2x2"]
)
def test_other_names_are_refused_with_the_forms(name: str) -> None:
    with pytest.raises(UsageError, match="v5p:2x2x4") as refused:
        described_slice(name)
    assert "v5e:2x2" in str(refused.value)


def test_what_the_devices_cannot_share_is_refused(folder: Path) -> None:
    """A batch of 16, and a width of 8, over 64 devices."""
    done = marin_scale("ladder", "tiny.yaml", "--compile-for", "v5p:4x4x4", "--only", "1e10", cwd=folder)
    assert_refused(done, "a batch of 16", "a width of 8", "64 devices")


def test_a_mesh_that_does_not_match_slice_and_model_is_refused_at_once(folder: Path) -> None:
    """Its product, heads, and experts of a dense model."""
    (folder / "tiny.yaml").write_text(LADDER + "hardware: {per_run: {mesh: {data: 2, model: 3, expert: 2}}}\n")
    done = marin_scale("ladder", "tiny.yaml", "--compile-for", "v5p:2x2x1", "--only", "1e10", cwd=folder)
    assert_refused(done, "12", "4 devices", "2 heads", "3 parts (model)", "0 experts", "2 parts (expert)")


def test_runs_to_compile_are_a_list(folder: Path) -> None:
    with pytest.raises(UsageError, match="target"):
        load_ladder(folder / "tiny.yaml").compile_for("v5p:2x2x1", only="target")
    with pytest.raises(UsageError, match="1e10"):
        load_ladder(folder / "tiny.yaml").plan("1e10")


@pytest.mark.parametrize(("seconds", "cell"), [(0.0123, "12.3 ms"), (9.9, "9.9 s"), (210.0, "3 min 30 s"), (None, "-")])
def test_the_time_of_a_step_is_short(seconds: float | None, cell: str) -> None:
    """In three digits, and empty if XLA refused the program."""
    shape = CompiledShape(
        runs=("1e10/8",),
        batch_size=16,
        needed_bytes=1.0,
        available_bytes=2.0,
        estimated_bytes=1.0,
        counted_flops=1.0,
        xla_flops=None,
        step_seconds_at_least=seconds,
        compile_seconds=1.0,
        remedy="",
    )
    head, row = repr(CompiledLadder(slice=described_slice("v5p:2x2x1"), shapes=(shape,))).splitlines()[:2]
    end = head.index("step >=") + len("step >=")
    assert (row[:end].rsplit("  ", 1)[-1].strip() or "-") == cell
