"""Refuses a core that is missing or of another version, with the command that installs the right one.

It runs before anything else of Farandole is imported, since such a core may lack what the plugin needs. So it cannot
lie in the core, and every plugin has a copy that differs in one line.
"""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "farandole-torch"


def _own_version() -> str:
    """The version of this plugin; "" where it runs from its source tree."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def misfit(own: str, core: str) -> str:
    """One sentence where a plugin of this version cannot use a core of that version, "" where it can.

    Versions of one minor number fit each other. An empty `core` is a missing one.
    """
    minor = ".".join(own.split(".")[:2])
    if not core:
        wanted = f"farandole=={minor}.*" if own else "farandole"
        return f"{DISTRIBUTION} needs farandole, which is not installed: python -m pip install '{wanted}'"
    if own and core.split(".")[:2] != own.split(".")[:2]:
        return (
            f"{DISTRIBUTION} {own} does not fit farandole {core}, which needs the same first two numbers: "
            f"python -m pip install --upgrade 'farandole=={minor}.*' '{DISTRIBUTION}=={minor}.*'"
        )
    return ""


def _core_version() -> str:
    try:
        from farandole import __version__ as version
    except ImportError as error:
        if error.name != "farandole":  # something else is missing in it
            raise
        return ""
    return version


_own, _core = _own_version(), _core_version()
if _problem := misfit(_own, _core):
    raise ImportError(_problem, name="farandole")
VERSION = _own or _core
