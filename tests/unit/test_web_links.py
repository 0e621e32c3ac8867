"""Which addresses carry a key, and that taking it out leaves the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.untrusted_text import key_in, keys_in_text, without_key

PLAIN = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
KEYS = ["accessToken", "access_token", "api_key", "sig", "X-Amz-Signature", "token", "password"]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_in_the_query_is_found_and_taken_out(name: str) -> None:
    """Whatever its case, and nothing else of the query."""
    address = f"https://wandb.ai/lab/reports/x?nw=ada&{name}=abc123"
    assert key_in(address) == name
    assert without_key(address) == "https://wandb.ai/lab/reports/x?nw=ada"


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ("https://ada:pw@example.org/x", "https://example.org/x"),
        ("https://example.org/x#access_token=abc", "https://example.org/x"),
        ("https://example.org/x#/view?token=abc", "https://example.org/x#/view"),
    ],
)
def test_a_key_elsewhere_in_an_address_is_found_too(address: str, left: str) -> None:
    """A password before the host, a token behind the #."""
    assert key_in(address)
    assert without_key(address) == left


@pytest.mark.parametrize(
    ("address", "left"),
    [
        ("https://x.org/?a=1;token=x", "https://x.org/?a=1"),
        ("https://x.org/x;token=x", "https://x.org/x"),
        ("https://x.org/?u=https://ada:pw@b.org/", "https://x.org/?u=https://b.org/"),
        ("https://x.org/?u=https%3A%2F%2Fb.org%2F%3Ftoken%3Dabc", "https://x.org/?u=https://b.org/"),
        ("ftp://ada:pw@b.org/x", "ftp://b.org/x"),
        ("https://x.org/?flag&refresh_token=x", "https://x.org/?flag"),
        ("https://x.org/?token[]=x&q=a%20b", "https://x.org/?q=a%20b"),
        ("https://x.org/?wandb_api_key=x", "https://x.org/"),
        ("HTTPS://x.org/x(1)?token=abc", "HTTPS://x.org/x(1)"),
    ],
)
def test_a_key_in_any_writing_is_found_and_nothing_else_taken(address: str, left: str) -> None:
    """Other separators, percent signs, an address in an address, names that only end like one."""
    assert key_in(address)
    assert without_key(address) == left
    assert keys_in_text(f"see {address} it's") == [key_in(address)]


@given(st.lists(PLAIN, max_size=3), st.dictionaries(st.sampled_from(["q", "nw", "path", "page"]), PLAIN))
def test_an_address_without_a_key_is_left_as_it_is(path: list[str], query: dict[str, str]) -> None:
    """To the letter."""
    address = f"https://example.org/{'/'.join(path)}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
    assert key_in(address) == ""
    assert without_key(address) == address


@given(PLAIN, st.sampled_from(KEYS), st.dictionaries(st.sampled_from(["q", "nw"]), PLAIN, max_size=2))
def test_no_key_is_left_by_taking_it_out(value: str, name: str, query: dict[str, str]) -> None:
    """Nor its value."""
    pairs = [*query.items(), (name, f"secret{value}secret")]
    cleaned = without_key("https://example.org/?" + "&".join(f"{each}={said}" for each, said in pairs))
    assert key_in(cleaned) == ""
    assert f"secret{value}secret" not in cleaned


def test_addresses_in_running_text_are_looked_at() -> None:
    """Each of them; words that only look like keys are none."""
    assert keys_in_text("see (https://a.org/x?token=1) and https://b.org/?q=token=2, not token=3") == ["token"]
