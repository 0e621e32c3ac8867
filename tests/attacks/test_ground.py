"""The ground of all attacks: what is attacked is sound, and so is what a forger makes of it who changes nothing."""

from pathlib import Path

from forgery import chain, log_again, log_entries, said_by, sign_again


def test_the_registry_that_is_attacked_is_sound(root: Path, folder: Path) -> None:
    """Nothing is refused before an attack, so that every refusal after one is of the attack."""
    assert said_by("verify", root)[0] == 0
    assert said_by("check", root)[0] == 0


def test_a_forger_who_changes_nothing_makes_a_sound_registry(root: Path, folder: Path, registry: Path) -> None:
    """Signed, logged and chained again it is as good as before: signature, digests and chain alone stop no forger here."""
    sign_again(folder)
    log_again(registry)
    chain(registry, log_entries(registry))
    assert said_by("verify", root)[0] == 0
