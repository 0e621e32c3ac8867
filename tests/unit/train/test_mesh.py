"""Runs spread over a mesh have the losses of one device; a CPU that XLA divides into four devices stands for accelerators."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from real_training import losses_of, trained
from run_factory import mixture_spec, rung_spec

from marin_scaling.errors import TrainingFailed
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.store import Workplace
from marin_scaling.train.launcher import worker_command

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

SPECS = {"dense": rung_spec(train_steps=8), "sparse": mixture_spec(train_steps=8)}
MESHES = {"dense": Mesh(data=2, model=2), "sparse": Mesh(data=2, expert=2)}
BEGINNINGS = {"dense": (3, ONE_AXIS), "sparse": (0, ONE_AXIS)}
"""Steps on another mesh, with which a run begins before it is stopped."""

SPREAD = """
import json, sys
sys.path[:0] = {path!r}
from pathlib import Path
import jax
import marin_scaling.train.train as module
from real_training import losses_of, trained
from test_mesh import BEGINNINGS, MESHES, SPECS

module.CHECKPOINT_SECONDS, module.SAVING_SHARE = 0.0, 1.0
kind = sys.argv[1]
last, other = BEGINNINGS[kind]
steps = []

def stopped(step, loss):
    if step == last + 1:
        raise KeyboardInterrupt

def shares(tree):
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {{jax.tree_util.keystr(path): leaf.addressable_shards[0].data.size / leaf.size for path, leaf in found}}

if last:
    try:
        trained(SPECS[kind], Path("work"), on_step=stopped, mesh=other)
    except KeyboardInterrupt:
        pass
result = trained(SPECS[kind], Path("work"), on_step=lambda step, loss: steps.append(step), mesh=MESHES[kind])
print(json.dumps([jax.device_count(), steps[0], shares(result.model), losses_of(result)]))
"""


def on_four_devices(kind: str, folder: Path) -> Any:
    """Number of devices, first step on the mesh, share of each parameter on a device, and losses."""
    folder.mkdir()
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    four = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-c", SPREAD.format(path=path), kind],
        cwd=folder,
        env=four,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_a_checkpoint_of_one_mesh_resumes_on_another_with_the_losses_of_one_device(tmp_path: Path) -> None:
    """A dense model begins on four parts of the batch; then two devices share heads and MLPs, and two the batch."""
    devices, first, shares, losses = on_four_devices("dense", tmp_path / "four")
    assert (devices, first) == (4, 4)
    assert losses == pytest.approx(losses_of(trained(SPECS["dense"], tmp_path / "one")), rel=1e-5)
    spread = {name: share for name, share in shares.items() if "_proj" in name}
    assert set(spread.values()) == {0.25}
    assert {shares[name] for name in shares if name.startswith((".embeddings", ".lm_head"))} == {0.25}


def test_a_mixture_with_spread_experts_has_the_losses_of_one_device(tmp_path: Path) -> None:
    """Experts are spread over two axes, all other matrices over one."""
    devices, first, shares, losses = on_four_devices("sparse", tmp_path / "four")
    assert (devices, first) == (4, 1)
    assert losses == pytest.approx(losses_of(trained(SPECS["sparse"], tmp_path / "one")), rel=1e-5)
    assert {share for name, share in shares.items() if ".experts." in name} == {0.25}
    assert {share for name, share in shares.items() if "q_proj" in name} == {0.5}


def test_optimizer_state_is_spread_like_its_parameters() -> None:
    """Names of axes in the states of both optimizers, over heads and over experts, are those of the mesh."""
    from marin_scaling.train.levanter_config import mesh_config

    found = mesh_config(Mesh(model=2, expert=2)).resolved_param_mapping
    assert [found[axis] for axis in ("heads", "kv_head", "In", "Out", "mlp")] == ["model"] * 5
    assert [found[axis] for axis in ("experts", "stack", "embed")] == ["expert", "expert", "data"]
    assert found["vocab"] == ("model", "expert")


def test_without_axes_the_mesh_is_levanters() -> None:
    from levanter.utils.mesh import MeshConfig

    from marin_scaling.train.levanter_config import mesh_config

    assert mesh_config(ONE_AXIS) == MeshConfig()


@pytest.mark.parametrize(("mesh", "devices"), [(Mesh(model=2), 3), (Mesh(data=4), 2), (Mesh(data=2, expert=2), 8)])
def test_other_devices_than_those_of_the_mesh_are_refused(mesh: Mesh, devices: int) -> None:
    from marin_scaling.train.levanter_config import require_devices

    with pytest.raises(TrainingFailed, match=str(devices)):
        require_devices(mesh, devices=devices)
    require_devices(mesh, devices=mesh.over(8).devices)


def test_training_processes_are_told_the_mesh() -> None:
    """Only if the ladder file has one."""
    from marin_scaling.train.__main__ import _parser

    for mesh in (ONE_AXIS, Mesh(data=2, model=2)):
        place = Workplace(runs_dir=Path("runs"), work_root=Path("work"), mesh=mesh)
        command = worker_command([SPECS["dense"]], workplace=place, cores=[0])
        assert ("--mesh" in command) == (mesh != ONE_AXIS)
        assert _parser().parse_args(command[command.index("--runs") :]).mesh == mesh
