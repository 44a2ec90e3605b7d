"""Exceptions of Horovod's names."""

from __future__ import annotations

from farandole import HorovodInternalError, HostsUpdatedInterrupt


class HorovodVersionMismatchError(ImportError):
    """For programs that catch it: Farandole is not compiled against a framework, so nothing here raises it."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} {version} is loaded, and {installed_version} was there at installation", name=name)
        self.version = version
        self.installed_version = installed_version
