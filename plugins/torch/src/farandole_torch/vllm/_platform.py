"""A platform of vLLM. Imported while vLLM finds its platform, so that nothing here may ask which that is."""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class FarandoleCpuPlatform(CpuPlatform):  # type: ignore[misc]  # vLLM is not read
    """vLLM's own for CPUs, which it is to every check, with another communicator."""

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "farandole_torch.vllm._communicator.Communicator"
