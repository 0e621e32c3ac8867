"""Every shipped track takes an entry, by each way in: runs of the store, and Marin's results."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import marin_scale
from registration_factory import run_spec, store_run

from marin_scaling.run.spec import DataSpec, EvaluationSpec, NamedTokens
from marin_scaling.run.store import Hardware
from marin_scaling.speedrun.track import Track, read_tracks

ROOT = Path(__file__).parents[3]
TRACKS = read_tracks(ROOT / "speedruns" / "tracks")
LOSSES = (1.01, 1.02, 1.03)
TIMES: dict[str, Any] = {"started_at": "2026-11-19T10:00:00Z", "finished_at": "2026-11-19T10:00:05Z", "wall_seconds": 4.0}


def repository(place: Path) -> Path:
    """A folder with the shipped tracks."""
    folder = place / "speedruns" / "tracks"
    folder.mkdir(parents=True)
    for path in (ROOT / "speedruns" / "tracks").glob("*.yaml"):
        (folder / path.name).write_bytes(path.read_bytes())
    return place


def run_for(track: Track, *, seed: int, loss: float, place: Path) -> str:
    """A recorded run on the track's data, measured on its held-out text beside another one; the run's folder."""
    digest = track.data_sha256 or "d" * 64
    data: dict[str, Any] = {"source": track.data_name or "web", "digest": digest, "train_bytes": 1000, "validation_bytes": 100}
    changes: dict[str, Any] = {}
    protocol = "disjoint-windows-first-byte-given"
    if track.evaluation_name:
        names = (track.evaluation_name.rpartition("/")[2], "wiki")
        data["held_out"] = {name: NamedTokens(tokens=6400, bytes=50, digest=f"{at}" * 64) for at, name in enumerate(names)}
        changes["losses"] = {names[0]: loss, names[1]: loss + 1}
        protocol = "disjoint-windows-first-token-given-mean-of-sets"
    update = {
        "data": DataSpec(**data),
        "evaluation": EvaluationSpec(seq_len=64, windows=64, protocol=protocol),
        "seed": seed,
        "data_order_seed": seed,
    }
    device = "NVIDIA H100 80GB HBM3" if track.hardware == ("h100",) else "cpu"
    changes["hardware"] = Hardware(platform="Linux x86_64", device_kind=device, device_count=1, cpu_count=2)
    spec = run_spec().model_copy(update=update)
    mean = loss + 0.5 if track.evaluation_name else loss
    folder = store_run(place / "runs", spec=spec, loss=mean, step_seconds=3.0, **TIMES, **changes)
    return str(folder.relative_to(place))


def judged(place: Path) -> list[dict[str, Any]]:
    """What `speedrun validate --json` says."""
    return json.loads(marin_scale("speedrun", "validate", "--json", cwd=place).stdout)["submissions"]


@pytest.mark.parametrize("name", TRACKS)
def test_runs_of_the_store_enter_every_track(name: str, tmp_path: Path) -> None:
    """The loss is that of the track's held-out text, not the mean over all sets."""
    place, track = repository(tmp_path), TRACKS[name]
    runs = [run_for(track, seed=seed, loss=loss, place=place) for seed, loss in enumerate(LOSSES)]
    done = marin_scale(
        "speedrun", "submit", *runs, "--name", "ada/a", "--track", name, "--author", "Ada", "--trials", 3, cwd=place
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = judged(place)
    assert found["accepted"], found["findings"]
    document = json.loads((place / "speedruns" / "ada" / "a" / "submission.json").read_text())
    assert [seed["bits_per_byte"] for seed in document["seeds"]] == list(LOSSES)


def marin_results(**changes: Any) -> dict[str, Any]:
    """One run as Marin's second shape has it."""
    config = {
        "hidden_dim": 32,
        "intermediate_dim": 128,
        "num_heads": 2,
        "num_kv_heads": 2,
        "num_layers": 2,
        "seq_len": 512,
    }
    info = {
        "author": {"name": "Ada", "affiliation": "", "url": None},
        "description": "A tiny model.",
        "eval/paloma/c4_en/bpb": 2.4,
        "model_config": config,
        "model_flops": 41342415667200.0,
        "model_size": 8241312,
        "num_chips": 16,
        "device_flops": 459e12,
        "resources": {"tpu_type": "v5p-32", "slice_count": 1},
        "run_completion_timestamp": "2025-05-19 07:14:05 UTC",
        "tokenized_dataset": "gs://bucket/tokenized/subcache/fineweb-edu-10B-6fbcbb",
        "total_tokens": 1638400,
        "train_config": {"num_train_steps": 100, "train_batch_size": 32, "data_seed": None},
        "training_hardware_flops": 30.0 * 16 * 459e12,
        "training_time": 30.0,
        "wandb_run_link": "https://example.org/run",
    }
    return info | changes


def imported(place: Path, *runs: dict[str, Any]) -> Any:
    """The result of importing one file with these runs."""
    path = place / "experiments" / "speedrun" / "llama" / "130m" / "speedrun_results.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"runs": [{"run_info": run} for run in runs]}))
    return marin_scale("speedrun", "import", path.relative_to(place), cwd=place)


@pytest.mark.parametrize("name", [name for name, track in TRACKS.items() if track.data_name and track.seeds_at_least == 1])
def test_results_of_marin_enter_every_track_on_fineweb(name: str, tmp_path: Path) -> None:
    """By the name of Marin's token cache."""
    place = repository(tmp_path)
    assert imported(place, marin_results()).returncode == 0
    path = place / "speedruns" / "llama" / "130m" / "submission.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"track": name}))
    assert [each["accepted"] for each in judged(place)] == [True]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resources": {"tpu_type": "v5p-32", "slice_count": 2}, "num_chips": 32}, "32 chips"),
        ({"resources": {"tpu_type": "v5p-32", "slice_count": [1, 2]}, "num_chips": 32}, "32 chips"),
        ({"resources": {"device": {"kind": "tpu", "variant": "v5p-32"}, "replicas": 2}, "num_chips": 32}, "32 chips"),
        ({"resources": {"accelerator_type": "A10G", "gpu_count": 32}, "device_flops": 125e12}, "1.25e14"),
        ({"resources": {"accelerator_type": "H100", "gpu_count": 32}, "device_flops": 756.5e12}, "h100-pcie"),
        ({"resources": {"accelerator_type": "A10G", "gpu_count": 32}, "num_chips": None, "device_flops": None}, "a10"),
        ({"resources": {"accelerator_type": "L4", "gpu_count": 32}, "num_chips": 32, "device_flops": 242e12}, "sparsity"),
        ({"resources": {"accelerator_type": "abacus", "gpu_count": 32}, "num_chips": 32, "device_flops": None}, "'abacus'"),
        ({"model_flops": 3.4e13}, "-17.8%"),
        ({"model_config": {"hidden_dim": 32}}, "unchecked"),
    ],
)
def test_an_honest_result_counted_otherwise_is_accepted_with_both_figures(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Several slices, variants of a chip, unknown chips, formulas of other architectures, and models without sizes."""
    place = repository(tmp_path)
    peak = changes.get("device_flops", 459e12) or (125e12 if "A10G" in str(changes) else 1e12)
    chips = 32 if "resources" in changes else 16
    run = marin_results(**{"training_hardware_flops": 30.0 * chips * peak, **changes})
    assert imported(place, run).returncode == 0
    (found,) = judged(place)
    assert found["accepted"], found["findings"]
    document = (place / "speedruns" / "llama" / "130m" / "submission.json").read_text()
    told = " ".join(each["message"] for each in found["findings"] if each["severity"] == "warning")
    assert said in told or (said == "32 chips" and json.loads(document)["compute"]["hardware"]["chips"] == 32)


def test_runs_of_one_configuration_are_seeds_of_one_submission(tmp_path: Path) -> None:
    """And of two configurations, two submissions."""
    place = repository(tmp_path)
    second = marin_results(**{"eval/paloma/c4_en/bpb": 2.41, "wandb_run_link": "https://example.org/2"})
    assert imported(place, marin_results(), second).returncode == 0
    (found,) = json.loads(marin_scale("speedrun", "validate", "--json", cwd=place).stdout)["submissions"]
    assert found["name"] == "llama/130m"
    document = json.loads((place / "speedruns" / "llama" / "130m" / "submission.json").read_text())
    assert [seed["bits_per_byte"] for seed in document["seeds"]] == [2.4, 2.41]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"eval/paloma/c4_en/bpb": None}, "eval/paloma/c4_en/bpb"),
        ({"eval/paloma/c4_en/bpb": float("nan")}, "eval/paloma/c4_en/bpb"),
        ({"model_size": "8M"}, "model_size"),
        ({"training_time": -1.0}, "training_time"),
        ({"run_completion_timestamp": "yesterday"}, "run_completion_timestamp"),
        ({"resources": {"tpu_type": "v5p-32", "slice_count": [1, 2]}, "num_chips": None}, "slice_count"),
        (
            {"train_config": {"num_train_steps": 100, "train_batch_size": [{"start": 0, "value": 7}]}},
            "train_batch_size",
        ),
    ],
)
def test_a_value_that_cannot_be_imported_is_named_by_its_own_key(changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    """With the path of the file."""
    bare = {"training_hardware_flops": None} if "resources" in changes else {}
    done = imported(repository(tmp_path), marin_results(**changes, **bare))
    assert done.returncode == 1
    assert f"{Path('experiments/speedrun/llama/130m/speedrun_results.json')}: " in done.stderr
    assert key in done.stderr
