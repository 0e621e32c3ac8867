"""Published and known figures that the fits must give back, each beside what they give: for tests and for `benchmarks/`.

Every figure is a fact with its source; the Delphi runs stand in `runs/delphi`. Chinchilla's points are somebody else's file,
read where it lies beside this repository and left out where it does not.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marin_scaling.fitting.bowl import Bowl, fit_bowl
from marin_scaling.fitting.frontier import fit_frontier, fit_pinned_frontier
from marin_scaling.fitting.surface import Objective, fit_surface
from marin_scaling.laws import FrontierLaw, frontier_loss

TARGET_FLOPS = (1e21, 1e22, 1e23)
ROOT = Path(__file__).parents[1]
DELPHI_RUNS = ROOT / "runs" / "delphi" / "runs.csv"
EPOCH = ROOT.parent / "shared" / "data" / "chinchilla_epoch.csv"

# --- Epoch's 240 points of Chinchilla's figure (Besiroglu et al. 2024), without the five highest losses, and all 245 ---------
# By an independent reference solver; the row "log-absolute" is what Besiroglu et al. print (482.01, 2085.43, .3478, .3658).
CHINCHILLA_OPTIMA = {  # objective, delta, points, (E, A, B, alpha, beta), value of the objective
    "log-huber": (
        Objective.LOG_HUBER,
        1e-3,
        240,
        (1.81721810, 477.82586, 2143.41734, 0.34731050, 0.36717243),
        1.018274017800604e-3,
    ),
    "smaller delta": (
        Objective.LOG_HUBER,
        1e-4,
        240,
        (1.81582358, 478.68871, 2065.41299, 0.34740885, 0.36538473),
        1.1177874816e-4,
    ),
    "log-absolute": (
        Objective.LOG_ABSOLUTE,
        1e-3,
        240,
        (1.81686413, 482.00606, 2085.43625, 0.34781307, 0.36585416),
        1.1294946536,
    ),
    "squares": (Objective.SQUARES, 1e-3, 240, (1.88281, 567.805, 7581.85, 0.357615, 0.427621), 240 * 3.46682532e-4),
    "all points": (Objective.LOG_HUBER, 1e-3, 245, (1.89134, 495.726, 12845.6, 0.349313, 0.453049), 1.826011e-3),
}

# Besiroglu et al. 2024 (their notebook, cells 25 and 26): standard deviations over 4,000 resamples of the 240 points.
CHINCHILLA_STANDARD_ERRORS = {"A": 124.5, "B": 1293.3, "E": 0.0257, "alpha": 0.0154, "beta": 0.0206}

# --- The seven published bowls of Delphi (openathena.ai/blog/delphi): L = a x^2 + b x + c, x = log10 tokens ------------------
DELPHI_OPTIMA = (  # budget, runs, a, b, c, D*, N*, L*
    (3.0e18, 5, 0.5732953357655423, -10.514341302730667, 51.79492367973987, 1479419846.4349046, 380691293, 3.5861880885612223),
    (9.0e18, 10, 0.5283811119210181, -9.999220340270968, 50.69270478922498, 2898203413.91, 558458702, 3.3857490911973898),
    (1.8e19, 15, 0.46493426341661637, -8.948588967604321, 46.32887897245253, 4202416947.878, 753603925, 3.2705098587879107),
    (3.0e19, 9, 0.39788052257399176, -7.7631775710519095, 41.06238746036791, 5697236384.01, 909880016, 3.194910554360341),
    (9.0e19, 14, 0.338922216969871, -6.785602112953769, 37.004860254494574, 10246124083.97, 1478431211, 3.0410230302917114),
    (1.8e20, 14, 0.3356739652163163, -6.839425308374326, 37.78503101734401, 15402871298.4477, 1936095968, 2.9463606138420815),
    (3.0e20, 14, 0.32496314992367503, -6.707006799901958, 37.489860773375476, 20875750175.555, 2353770605, 2.8829059351910544),
)

# --- Czech's "A2" on the 78 Delphi runs of at most 250 tokens a parameter ----------------------------------------------------
# Open-Athena/scaling-law-analysis, analysis/results/forecast_sensitivity.md at 42be196. Bowls in log tokens, bowls in log
# parameters, power laws through their bottoms over compute in buckets of 10 %, L* = k D*^-g + E, read at the targets' tokens.
CZECH_A2 = {"a": 0.3907, "b": 0.5744, "k": 88.0788, "g": 0.184121, "E": 1.784029}
CZECH_A2_FORECASTS = {46256881664: 2.741643, 160369213440: 2.545714, 628172521472: 2.376408}  # tokens of 1e21, 1e22, 1e23
MOST_TOKENS_PER_PARAMETER = 250
CZECH_A2_WITHOUT_ONE = {  # dropped budget: forecasts; same file, without the two rows its optimiser collapsed on
    3.0e18: (2.757069, 2.590218, 2.458468),
    1.8e19: (2.739440, 2.539879, 2.366019),
    9.0e19: (2.741745, 2.542546, 2.368797),
    1.8e20: (2.742648, 2.547409, 2.378899),
    3.0e20: (2.728540, 2.519512, 2.334061),
}
CZECH_A2_WITHOUT_ONE_CORRECTED = {9.0e18: 0.67, 3.0e19: 0.41}  # those two in its later version: change of the 1e23 forecast, %

# --- Marin's MoE v16 ladder (issue 4447): optima of six budgets, forecasts from the first 3 to 6 with E = 1.6 -----------------
MOE_FLOPS = np.array([1e18, 3e18, 1e19, 3e19, 1e20, 3e20])
MOE_OPTIMA = np.array([3.522, 3.339, 3.154, 3.0, 2.848, 2.725])
MOE_OPTIMA_WITHIN_ROUNDING = np.array([3.52177, 3.33949, 3.15433, 2.99992, 2.84848, 2.72546])  # ours: see the test that uses it
MOE_LEAVE_FUTURE_OUT = {
    3: (2.617, 2.423, 2.265),
    4: (2.611, 2.416, 2.258),
    5: (2.607, 2.412, 2.254),
    6: (2.606, 2.410, 2.252),
}
MOE_FORECASTS_BY_ASYMPTOTE = {1.3: 2.2036, 1.4: 2.2182, 1.447: 2.2255, 1.5: 2.2342, 1.6: 2.2518, 1.7: 2.2713}  # at 1e23

# --- Marin's 67B (issue 6044, comment 4820008980): three anchors, forecasts for 1.19e23 FLOPs by pinned E ---------------------
LARGE_MOE_FLOPS = np.array([2.00e19, 1.31e20, 7.16e20])
LARGE_MOE_ANCHORS = np.array([3.2373, 2.9538, 2.7515])
LARGE_MOE_FORECASTS_BY_ASYMPTOTE = {1.3: 2.2583, 1.4: 2.2692, 1.5: 2.2814, 1.6: 2.2949}

# --- Delphi's forecasts for 1e21, 1e22 and 1e23 by pinned E, refitted by others from the published runs -----------------------
DELPHI_FORECASTS_BY_ASYMPTOTE = {
    "81 runs": {
        1.5: (2.7420, 2.5122, 2.3248),
        1.6: (2.7452, 2.5212, 2.3411),
        1.7: (2.7487, 2.5313, 2.3589),
        1.8: (2.7527, 2.5425, 2.3786),
        1.9: (2.7572, 2.5550, 2.4005),
    },
    "78 runs": {
        1.5: (2.7453, 2.5162, 2.3292),
        1.6: (2.7484, 2.5251, 2.3453),
        1.7: (2.7520, 2.5351, 2.3630),
        1.8: (2.7559, 2.5462, 2.3825),
        1.9: (2.7604, 2.5587, 2.4042),
    },
    "78 runs, compute in buckets": {
        1.5: (2.7470, 2.5187, 2.3322),
        1.6: (2.7501, 2.5276, 2.3481),
        1.7: (2.7536, 2.5375, 2.3657),
        1.8: (2.7576, 2.5485, 2.3851),
        1.9: (2.7620, 2.5609, 2.4067),
    },
}
FOUR_DECIMALS = 0.5e-4


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure from elsewhere, what our fit gives, and how far apart they may be (`tolerance`, absolute)."""

    what: str
    known: float
    found: float
    tolerance: float

    @property
    def relative_difference(self) -> float:
        """(found - known) / known."""
        return self.found / self.known - 1

    @property
    def is_met(self) -> bool:
        """Whether ours is as close as asked."""
        return abs(self.found - self.known) <= self.tolerance


def chinchilla_points(count: int) -> dict[str, np.ndarray]:
    """The `count` points of lowest loss: params, tokens, loss, each (run,)."""
    rows = sorted(_rows(EPOCH), key=lambda row: float(row["loss"]))[:count]
    return {name: np.array([float(row[name]) for row in rows]) for name in ("params", "tokens", "loss")}


def chinchilla_targets() -> list[Target]:
    """Every row of `CHINCHILLA_OPTIMA`; none where the points are not at hand."""
    return [target for name in CHINCHILLA_OPTIMA for target in chinchilla_row(name)] if EPOCH.exists() else []


def chinchilla_row(name: str) -> list[Target]:
    """The objective and the five numbers of one row of `CHINCHILLA_OPTIMA`."""
    objective, delta, count, numbers, value = CHINCHILLA_OPTIMA[name]
    fit = fit_surface(**chinchilla_points(count), objective=objective, huber_delta=delta)
    found = (fit.law.E, fit.law.A, fit.law.B, fit.law.alpha, fit.law.beta)
    named = zip(("E", "A", "B", "alpha", "beta"), numbers, found, strict=True)
    return [
        _relative(
            f"Chinchilla, {name}: objective", value, fit.value, 1e-9 if count == 240 else 3e-7
        ),  # of 245 seven digits are known
        *(_relative(f"Chinchilla, {name}: {letter}", known, ours, 5e-6) for letter, known, ours in named),
    ]


def delphi_targets() -> list[Target]:
    """Coefficients and bottoms of the seven bowls, to 1e-10."""
    targets = []
    for bowl, (budget, _, a, b, c, tokens, _, loss) in zip(delphi_bowls(), DELPHI_OPTIMA, strict=True):
        pairs = {"a": (a, bowl.a), "b": (b, bowl.b), "c": (c, bowl.c)}
        pairs |= {"D*": (tokens, bowl.optimal_tokens), "L*": (loss, bowl.optimal_loss)}
        targets += [_relative(f"Delphi, {budget:.3g} FLOPs: {name}", *pair, 1e-10) for name, pair in pairs.items()]
    return targets


def delphi_bowls(*, most_tokens_per_param: float = np.inf, in_params: bool = False) -> list[Bowl]:
    """The quadratic of each budget in log tokens (or in log parameters, which then stand where tokens do)."""
    budgets = delphi_runs_by_budget(most_tokens_per_param=most_tokens_per_param)
    return [fit_bowl(**{**runs, "tokens": runs["params"] if in_params else runs["tokens"]}) for runs in budgets]


def delphi_runs_by_budget(*, most_tokens_per_param: float = np.inf) -> list[dict[str, np.ndarray]]:
    """flops, params, tokens and loss, each (run,), of every budget."""
    runs = [row for row in _rows(DELPHI_RUNS) if float(row["tokens"]) <= most_tokens_per_param * float(row["params"])]
    budgets = sorted({float(row["budget_flops"]) for row in runs})
    return [_columns([row for row in runs if float(row["budget_flops"]) == budget]) for budget in budgets]


def _columns(runs: list[dict[str, str]]) -> dict[str, np.ndarray]:
    return {name: np.array([float(run[name]) for run in runs]) for name in ("flops", "params", "tokens", "loss")}


def czech_a2_targets() -> list[Target]:
    """The published digits: four of the exponents a and b, all printed ones of the law and its forecasts."""
    bowls = delphi_bowls(most_tokens_per_param=MOST_TOKENS_PER_PARAMETER)
    in_params = delphi_bowls(most_tokens_per_param=MOST_TOKENS_PER_PARAMETER, in_params=True)
    flops, tokens, loss = bucketed(_flops(bowls)), np.array([bowl.optimal_tokens for bowl in bowls]), _losses(bowls)
    law = fit_frontier(tokens, loss=loss)  # the same three-parameter law, over tokens
    found = {
        "a": _slope(flops, np.array([bowl.optimal_tokens for bowl in in_params])),
        "b": _slope(flops, tokens),
        "k": law.A * law.reference_flops**law.gamma,
        "g": law.gamma,
        "E": law.E,
    }
    digits = {"a": 0.5e-4, "b": 0.5e-4, "k": 0.5e-4, "g": 0.5e-6, "E": 0.5e-6}
    return [
        *(Target(what=f"Czech A2: {n}", known=CZECH_A2[n], found=found[n], tolerance=digits[n]) for n in CZECH_A2),
        *(
            _forecast(f"Czech A2: loss after {tokens:.3g} tokens", known, law, tokens, tolerance=0.5e-6)
            for tokens, known in CZECH_A2_FORECASTS.items()
        ),
    ]


def czech_a2_without_one_targets() -> list[Target]:
    """The forecasts without one budget, to all six printed decimals; of the two that were corrected the change in per cent."""
    bowls = delphi_bowls(most_tokens_per_param=MOST_TOKENS_PER_PARAMETER)
    laws = {row[0]: _law_without(bowls, index) for index, row in enumerate(DELPHI_OPTIMA)}
    *_, (farthest, with_all) = CZECH_A2_FORECASTS.items()
    return [
        *(
            _forecast(f"Czech A2 without {budget:.2g}: {tokens:.3g} tokens", known, laws[budget], tokens, tolerance=0.5e-6)
            for budget, row in CZECH_A2_WITHOUT_ONE.items()
            for tokens, known in zip(CZECH_A2_FORECASTS, row, strict=True)
        ),
        *(
            Target(
                what=f"Czech A2 without {budget:.2g}: change at 1e23, %",
                known=known,
                found=100 * (float(frontier_loss(laws[budget], flops=farthest)) / with_all - 1),
                tolerance=0.5e-2,
            )
            for budget, known in CZECH_A2_WITHOUT_ONE_CORRECTED.items()
        ),
    ]


def _law_without(bowls: list[Bowl], index: int) -> FrontierLaw:
    """Over tokens, as Czech's."""
    kept = bowls[:index] + bowls[index + 1 :]
    return fit_frontier(np.array([bowl.optimal_tokens for bowl in kept]), loss=_losses(kept))


def bucketed(flops: np.ndarray) -> np.ndarray:
    """Compute rounded to whole powers of 1.1, as in Marin's isoFLOP analysis."""
    return np.asarray(1.1 ** np.round(np.log(flops) / np.log(1.1)))


def moe_leave_future_out_targets(optima: np.ndarray = MOE_OPTIMA) -> list[Target]:
    """Twelve forecasts, wanted to 0.001; the optima themselves are published to 0.001 only."""
    return [
        _forecast(f"MoE v16, first {count} budgets: {flops:.0e} FLOPs", known, moe_law(optima, count), flops, tolerance=1e-3)
        for count, row in MOE_LEAVE_FUTURE_OUT.items()
        for flops, known in zip(TARGET_FLOPS, row, strict=True)
    ]


def moe_law(optima: np.ndarray, count: int, *, asymptote: float = 1.6) -> FrontierLaw:
    """The pinned law through the first `count` optima of the MoE ladder."""
    return fit_pinned_frontier(MOE_FLOPS[:count], loss=optima[:count], asymptote=asymptote)


def asymptote_targets() -> list[Target]:
    """Forecasts by pinned asymptote, to the four decimals that are known."""
    large_moe = {
        pinned: (known, fit_pinned_frontier(LARGE_MOE_FLOPS, loss=LARGE_MOE_ANCHORS, asymptote=pinned))
        for pinned, known in LARGE_MOE_FORECASTS_BY_ASYMPTOTE.items()
    }
    moe = {pinned: (known, moe_law(MOE_OPTIMA, 6, asymptote=pinned)) for pinned, known in MOE_FORECASTS_BY_ASYMPTOTE.items()}
    return [
        *(
            _forecast(f"67B, E = {pinned}: 1.19e23 FLOPs", known, law, 1.19e23, tolerance=FOUR_DECIMALS)
            for pinned, (known, law) in large_moe.items()
        ),
        *(
            _forecast(f"MoE v16, E = {pinned}: 1e23 FLOPs", known, law, 1e23, tolerance=FOUR_DECIMALS)
            for pinned, (known, law) in moe.items()
        ),
        *(target for runs in DELPHI_FORECASTS_BY_ASYMPTOTE for target in _delphi_by_asymptote(runs)),
    ]


def _delphi_by_asymptote(runs: str) -> list[Target]:
    bowls = delphi_bowls(most_tokens_per_param=np.inf if runs == "81 runs" else MOST_TOKENS_PER_PARAMETER)
    nominal = np.array([row[0] for row in DELPHI_OPTIMA])
    flops = bucketed(nominal) if "buckets" in runs else nominal
    laws = {E: fit_pinned_frontier(flops, loss=_losses(bowls), asymptote=E) for E in DELPHI_FORECASTS_BY_ASYMPTOTE[runs]}
    return [
        _forecast(f"Delphi, {runs}, E = {E}: {target:.0e} FLOPs", known, laws[E], target, tolerance=FOUR_DECIMALS)
        for E, row in DELPHI_FORECASTS_BY_ASYMPTOTE[runs].items()
        for target, known in zip(TARGET_FLOPS, row, strict=True)
    ]


def _forecast(what: str, known: float, law: FrontierLaw, flops: float, *, tolerance: float) -> Target:
    return Target(what=what, known=known, found=float(frontier_loss(law, flops=flops)), tolerance=tolerance)


def _relative(what: str, known: float, found: float, tolerance: float) -> Target:
    return Target(what=what, known=known, found=found, tolerance=tolerance * abs(known))


def _flops(bowls: list[Bowl]) -> np.ndarray:
    return np.array([bowl.flops for bowl in bowls])


def _losses(bowls: list[Bowl]) -> np.ndarray:
    return np.array([bowl.optimal_loss for bowl in bowls])


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
