"""Exceptions of Horovod's names. Farandole raises the first alone, or a class derived from it."""

from __future__ import annotations

from farandole import HorovodInternalError


class HostsUpdatedInterrupt(RuntimeError):
    """For programs that catch it: the hosts of a job have changed. Nothing here raises it so far."""

    def __init__(self, skip_sync: bool = False) -> None:
        self.skip_sync = skip_sync
        super().__init__(f"the hosts of the job have changed (skip_sync={skip_sync})")


class HorovodVersionMismatchError(ImportError):
    """For programs that catch it: Farandole is not compiled against a framework, so nothing here raises it."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(f"{name} {version} is loaded, and {installed_version} was there at installation", name=name)
        self.version = version
        self.installed_version = installed_version
