"""Where the core gets tensors that lie on devices."""

from types import SimpleNamespace

import pytest
from farandole._runtime import staging


class Device:
    def holds(self, tensor):
        return tensor is not None

    def device_of(self, tensor):
        return tensor


@pytest.mark.parametrize("takes_memory", [False, True])
def test_what_lies_on_several_devices_is_staged_on_the_host(monkeypatch, takes_memory):
    core = SimpleNamespace(reads_devices=lambda: True, takes_device_memory=lambda: takes_memory)
    monkeypatch.setattr(staging, "core", core)
    places = staging.MemoryByDevice(SimpleNamespace(device=Device()))
    assert places.of([0]) is places.of([0, 0, None]) is places._on_device
    several = places._on_device if takes_memory else places._on_host  # which says what is wrong with it
    assert places.of([0, 1]) is several
