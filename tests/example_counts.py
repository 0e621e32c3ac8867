"""Numbers of hypothesis examples: a part of them on pull requests, all in the nightly run."""

from hypothesis import settings

NIGHTLY = "nightly"


def is_nightly() -> bool:
    """Return True under `pytest --hypothesis-profile=nightly`."""
    return settings.get_current_profile_name() == NIGHTLY


def examples(nightly: int, *, pull_request: int) -> settings:
    """Settings of a property whose examples cost much."""
    return settings(max_examples=nightly if is_nightly() else pull_request)
