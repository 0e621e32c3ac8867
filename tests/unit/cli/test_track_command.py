"""`marin-scale track` on this project's own recorded runs, in a copy of them."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale
from own_registrations import answering_run, registered

from marin_scaling.run.curves import LossCurve

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "runs" / "bytes-dense", copy / "runs" / "bytes-dense")
    shutil.copytree(ROOT / "preregistrations", copy / "preregistrations")
    shutil.copytree(ROOT / "ladders", copy / "ladders")
    return copy


@pytest.fixture(scope="module")
def name() -> str:
    """The preregistration of the target."""
    return registered("bytes-dense").name


def target_of(folder: Path) -> Path:
    return folder / "runs" / "bytes-dense" / answering_run(registered("bytes-dense")).folder.name


def test_a_target_is_tracked_by_the_name_of_its_preregistration(folder: Path, name: str) -> None:
    """Beside the signed forecast; as text and as a document that say the same."""
    shown = marin_scale("track", name, "--steps", "400", cwd=folder).stdout
    document = json.loads(marin_scale("track", name, "--steps", "400", "--json", cwd=folder).stdout)
    assert "step 400 of " in shown
    assert f"(signed: {name})" in " ".join(shown.split())
    assert shown.splitlines()[-1] == document["verdict"] == "on forecast"
    assert f"{document['expected']['0.5']:.4f} bits/byte" in shown
    low, high = document["usual_train_loss_nats_per_token"]
    assert low < document["train_loss_nats_per_token"] < high


def test_of_a_run_that_has_ended_its_end_is_said_and_nothing_predicted(folder: Path, name: str) -> None:
    """Beside its forecast; as text and as a document."""
    shown = marin_scale("track", name, cwd=folder).stdout
    document = json.loads(marin_scale("track", name, "--json", cwd=folder).stdout)
    recorded = json.loads((target_of(folder) / "record.json").read_bytes())["loss"]
    assert f"it ended at {recorded:.4f} bits/byte" in shown
    assert "will end" not in shown
    assert (document["ended_at"], document["expected"], document["usual_train_loss_nats_per_token"]) == (recorded, None, None)


def test_a_curve_from_elsewhere_is_tracked_against_the_preregistration_that_is_named(folder: Path, name: str) -> None:
    """A table of the same losses says the same as the run itself."""
    rows = json.loads((target_of(folder) / "history.json").read_bytes())["rows"][:400]
    (folder / "curve.csv").write_text(
        "step,loss\n" + "".join(f"{row['step']},{row['train_loss_nats_per_token']}\n" for row in rows)
    )
    elsewhere = marin_scale("track", "curve.csv", "--against", name, cwd=folder).stdout
    assert elsewhere == marin_scale("track", name, "--steps", "400", cwd=folder).stdout
    refused = marin_scale("track", "curve.csv", cwd=folder)
    assert_refused(refused, "curve.csv is a table of losses", "--against FOLDER")


def test_a_curve_from_elsewhere_has_the_stability_that_its_table_holds(folder: Path, name: str) -> None:
    """Gradient norms and the entropy of routers, of the steps that are used; a table without them has none."""
    rows = json.loads((target_of(folder) / "history.json").read_bytes())["rows"][:400]
    plain = [f"{row['step']},{row['train_loss_nats_per_token']}" for row in rows]
    full = [f"{line},{'inf' if n == 7 else 0.5},{'' if n % 100 else 0.6}" for n, line in enumerate(plain)]
    (folder / "full.csv").write_text("\n".join(["step,loss,grad/norm/total,moe/router_entropy", *full]))
    (folder / "plain.csv").write_text("\n".join(["step,loss", *plain]))
    command = ("track", "full.csv", "--against", name)
    found = json.loads(marin_scale(*command, "--json", cwd=folder).stdout)["stability"]
    assert (found["gradient_norm"], found["gradient_norm_step"], found["router_entropy_nats"]) == (0.5, 399, [0.6])
    assert any("step 7" in each for each in found["findings"])
    assert "stability" in marin_scale(*command, cwd=folder).stdout.splitlines()
    first = json.loads(marin_scale(*command, "--steps", "5", "--json", cwd=folder).stdout)["stability"]
    assert first["findings"] == []
    without = json.loads(marin_scale("track", "plain.csv", "--against", name, "--json", cwd=folder).stdout)
    assert without["stability"] is None


def test_a_target_is_tracked_against_the_law_of_its_ladder(folder: Path) -> None:
    """It is no row of that table; a curve from elsewhere needs a run that says how long it is."""
    shown = marin_scale(
        "track", target_of(folder).name[:6], "--steps", "400", "--against", "ladders/bytes-dense.yaml", cwd=folder
    )
    assert "(law of the other runs in runs/bytes-dense)" in " ".join(shown.stdout.split()), shown.stderr
    refused = marin_scale("track", "curve.csv", "--against", "ladders/bytes-dense.yaml", cwd=folder)
    assert_refused(refused, "ladders/bytes-dense.yaml is not a preregistration", "--against FOLDER")


def test_a_rung_is_tracked_by_its_digits_against_the_law_of_the_others(folder: Path) -> None:
    """Without itself among them."""
    rung = next(path.name for path in sorted((folder / "runs" / "bytes-dense").iterdir()) if path != target_of(folder))
    shown = " ".join(marin_scale("track", rung[:6], "--steps", "60", cwd=folder).stdout.split())
    assert "as the curves of 15 finished runs went" in shown
    assert "(law of the other runs in runs/bytes-dense)" in shown


def test_stability_is_shown_of_a_run_as_it_stands(folder: Path) -> None:
    """From its rows so far: norms, spikes, entropy and loads; of an earlier step, what had been measured by then."""
    rung = next(path.name for path in sorted((folder / "runs" / "bytes-dense").iterdir()) if path != target_of(folder))
    work = folder / ".marin-scaling" / "work" / rung
    work.mkdir(parents=True)
    shares, norms = [[0.3, 0.2, 0.3, 0.2], [0.6, 0.39, 0.01, 0.0]], [0.4, 0.41] * 30 + [9.0, 9.5, 9.1] + [0.4] * 37
    with LossCurve(work / "loss_curve.jsonl") as curve:
        for step, norm in enumerate(norms):
            routing = {"router_entropy_nats": [1.3, 1.2], "expert_shares": shares} if step == 64 else {}
            curve.add(5.0 - 0.02 * step, gradient_norm=norm, **routing)
    (folder / "runs" / "bytes-dense" / rung).rename(folder / rung)
    specs = folder / ".marin-scaling" / "specs"
    specs.mkdir()
    shutil.copy(folder / rung / "spec.json", specs / f"{rung}.json")
    shown = marin_scale("track", rung, cwd=folder).stdout
    words = " ".join(shown.split())
    assert "layer 1: 2 of 4 experts get less than a tenth of an even share" in words
    assert all(fact in words for fact in ("gradient norm 0.4 at step 99", "3 logged steps from step 60", "ln(4) = 1.39"))
    stability = json.loads(marin_scale("track", rung, "--json", cwd=folder).stdout)["stability"]
    assert (stability["gradient_spikes"][0]["step"], stability["routed_at_step"], stability["dropped_share"]) == (60, 64, 0.0)
    assert stability["most_load"] == {"even_shares": 2.4, "layer": 1, "expert": 0}
    earlier = json.loads(marin_scale("track", rung, "--steps", "50", "--json", cwd=folder).stdout)["stability"]
    assert (earlier["gradient_spikes"], earlier["findings"], earlier["expert_shares"]) == ([], [], [])
    (folder / rung).rename(folder / "runs" / "bytes-dense" / rung)


def test_a_run_that_is_not_here_is_refused(folder: Path) -> None:
    """With where its digits are to be found."""
    for word in ("zzzz", "/nowhere/curve.csv", "*"):
        assert_refused(marin_scale("track", word, cwd=folder), f"{word}: no run has a digest", "runs/LADDER")
