"""Energy that the graphics processors of this machine have used, read through NVIDIA's own library where there is one.

The library (NVML) comes with the driver; it is called through ctypes, so nothing needs to be installed. Its counter starts when the
driver is loaded (Volta and later), so two readings tell the energy between them. Processors, memory and fans are not in it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

LIBRARY = "libnvidia-ml.so.1"
MILLI = 1000
NAME_BYTES = 96
_SUCCESS = 0


class EnergyMeter(Protocol):
    """Reads a counter of energy that only rises."""

    def read_j(self) -> float | None:
        """Return the energy in joules since some fixed moment, ``None`` where it cannot be read."""

    def describe(self) -> dict[str, Any] | None:
        """Return what is metered, for the manifest; ``None`` where nothing is."""


@dataclass(frozen=True, slots=True)
class NoMeter:
    """Stands where energy cannot be read: the engine is elsewhere, or there is no such processor."""

    def read_j(self) -> float | None:
        """Return ``None``."""
        return None

    def describe(self) -> dict[str, Any] | None:
        """Return ``None``."""
        return None


@dataclass(frozen=True, slots=True)
class GpuMeter:
    """Sums over the graphics processors that programs started from here can see."""

    nvml: Any
    handles: tuple[ctypes.c_void_p, ...]
    names: tuple[str, ...]

    def read_j(self) -> float | None:
        """Return the energy of all of them in joules, ``None`` if one does not tell it."""
        total = 0
        for handle in self.handles:
            value = ctypes.c_ulonglong()
            if self.nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value)) != _SUCCESS:
                return None
            total += value.value
        return total / MILLI

    def describe(self) -> dict[str, Any] | None:
        """Return source and names of what is metered."""
        return {"source": "nvml", "devices": list(self.names)}


def open_meter(load: Callable[[str], Any] = ctypes.CDLL, environment: Mapping[str, str] = os.environ) -> EnergyMeter:
    """Return a meter of this machine, :class:`NoMeter` where there is no NVML or no processor tells its energy.

    Args:
        load: opens the library.
        environment: its ``CUDA_VISIBLE_DEVICES``, where it is set, says which processors the engine can use; others are left out.
    """
    try:
        library = load(LIBRARY)
    except OSError:
        return NoMeter()
    if library.nvmlInit_v2() != _SUCCESS:
        return NoMeter()
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return NoMeter()
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    places = list(range(count.value)) if visible is None else _places(visible, count.value)
    handles, names = [], []
    for place in places or ():
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(place), ctypes.byref(handle)) != _SUCCESS:
            return NoMeter()
        name = ctypes.create_string_buffer(NAME_BYTES)
        told = library.nvmlDeviceGetName(handle, name, ctypes.c_uint(NAME_BYTES)) == _SUCCESS
        handles.append(handle)
        names.append(name.value.decode("utf-8", "replace") if told else "?")
    meter = GpuMeter(library, tuple(handles), tuple(names))
    return meter if handles and meter.read_j() is not None else NoMeter()


def _places(visible: str, count: int) -> list[int] | None:
    """Return the numbers in ``CUDA_VISIBLE_DEVICES``, ``None`` where they are no plain numbers: then nobody knows which are meant."""
    parts = [part.strip() for part in visible.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) < count for part in parts):
        return None
    return [int(part) for part in parts]
