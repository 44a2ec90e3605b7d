"""The version of this installation."""

from __future__ import annotations

from importlib import metadata


def own_version() -> str:
    """The version of the installed distribution; "(run from its source tree)" where there is none."""
    try:
        return metadata.version("farandole")
    except metadata.PackageNotFoundError:
        return "(run from its source tree)"
