"""Versions of the core and its plugins: those of one minor number fit each other."""

from __future__ import annotations

from importlib import metadata


def version_of(plugin: str) -> str:
    """Return the version of an installed plugin, or that of the core where it runs from its source tree.

    A plugin calls it before it imports anything else of Farandole that another version may lack.

    Args:
        plugin: the name of its distribution, such as "farandole-torch".

    Raises:
        ImportError: the two do not fit; the message has the command that installs a pair that does.
    """
    from farandole import __version__ as core

    try:
        version = metadata.version(plugin)
    except metadata.PackageNotFoundError:
        return core
    minor = _minor(version)
    if _minor(core) != minor:
        raise ImportError(
            f"{plugin} {version} does not fit farandole {core}, which needs the same first two numbers: "
            f"python -m pip install --upgrade 'farandole=={minor}.*' '{plugin}=={minor}.*'",
            name="farandole",
        )
    return version


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
