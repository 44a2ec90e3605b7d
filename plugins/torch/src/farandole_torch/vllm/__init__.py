"""Inference with vLLM on CPUs: the sums of tensor parallelism on Farandole.

vLLM finds both functions by their entry points, so installing this package is enough; see docs/guide/inference.md.
"""

from __future__ import annotations

import warnings

from farandole_torch._versions import require

__all__ = ["platform", "register"]

require("farandole_torch.vllm", (2, 9))

_COMMUNICATOR = f"{__name__}._communicator.Communicator"
_PLATFORM = "vllm.platforms.cpu.CpuPlatform"  # which ours derives from


def platform() -> str | None:
    """Return the name of vLLM's platform for CPUs whose collectives are Farandole's; None where vLLM uses no CPUs."""
    from vllm.platforms import cpu_platform_plugin

    if cpu_platform_plugin() != _PLATFORM or not _is_usable():
        return None
    return f"{__name__}._platform.FarandoleCpuPlatform"


def register() -> None:
    """Have the platform for CPUs that vLLM has chosen use Farandole, where it has not asked `platform`."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and _is_usable():
        type(current_platform).get_device_communicator_cls = classmethod(lambda _: _COMMUNICATOR)


def _is_usable() -> bool:
    try:
        import farandole_torch.operators  # noqa: F401
    except ImportError as error:
        warnings.warn(f"vLLM keeps its own collectives: {error}", stacklevel=3)
        return False
    return True
