"""Servers that the tests of a file share, and where the helpers of other folders lie."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/support"), str(ROOT / "scripts")]

from headroom_server import HeadroomServer  # noqa: E402


@pytest.fixture(scope="session")
def tiny():
    """builtin:tiny: nonsense text, real protocol."""
    with HeadroomServer("builtin:tiny", "--threads", "1", "--check-invariants") as server:
        yield server


@pytest.fixture(scope="session")
def needle():
    """builtin:needle-1hop: token ids only, answers that can be checked."""
    with HeadroomServer("builtin:needle-1hop", "--threads", "1") as server:
        yield server
