"""Energy read through NVML, with a library that stands in for NVIDIA's."""

from __future__ import annotations

from typing import Any

from harness.power import LIBRARY, NoMeter, open_meter


class Library:
    """Two processors that have used 5 J and 7 J; ``fails`` names a call that does not succeed."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def _answer(self, name: str) -> int:
        return 3 if name == self.fails else 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 – NVML's own name
        """Start."""
        return self._answer("init")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        """Count."""
        count._obj.value = 2
        return self._answer("count")

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        """Open one; its handle is its number and one."""
        handle._obj.value = index.value + 1
        return self._answer("handle")

    def nvmlDeviceGetName(self, handle: Any, name: Any, size: Any) -> int:  # noqa: N802
        """Name one."""
        name.value = f"GPU {handle.value}".encode()
        return self._answer("name")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> int:  # noqa: N802
        """Tell millijoules."""
        energy._obj.value = {1: 5000, 2: 7000}[handle.value]
        return self._answer("energy")


def meter(fails: str = "", **environment: str) -> Any:
    """Open a meter on the stand-in."""

    def load(name: str) -> Library:
        assert name == LIBRARY
        return Library(fails)

    return open_meter(load, environment)


def test_all_processors_are_summed() -> None:
    """5 J and 7 J are 12 J, and the manifest names both."""
    assert meter().read_j() == 12
    assert meter().describe() == {"source": "nvml", "devices": ["GPU 1", "GPU 2"]}


def test_processors_that_the_engine_cannot_see_are_left_out() -> None:
    """With only the second one visible there are 7 J."""
    assert meter(CUDA_VISIBLE_DEVICES="1").read_j() == 7


def test_names_that_are_no_numbers_are_not_guessed() -> None:
    """A processor named by its identifier could be either: nothing is metered."""
    assert meter(CUDA_VISIBLE_DEVICES="GPU-8f2c").read_j() is None


def test_a_failing_library_meters_nothing() -> None:
    """No call of it that fails becomes a figure."""
    for call in ("init", "count", "handle", "energy"):
        assert meter(call).read_j() is None


def test_a_machine_without_the_library_meters_nothing() -> None:
    """Where there is no driver there is no energy, not 0."""

    def absent(name: str) -> Any:
        raise OSError(name)

    assert open_meter(absent, {}) == NoMeter()
    assert NoMeter().read_j() is None
    assert NoMeter().describe() is None
