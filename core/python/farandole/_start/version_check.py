"""Checks the versions of the core and its plugins, which must have the same minor version."""

from __future__ import annotations

from importlib import metadata


def version_of(plugin: str) -> str:
    """Return the version of an installed plugin, or that of the core if the plugin runs from its source tree.

    A plugin calls this before it imports anything else of Farandole that another version may lack.

    Args:
        plugin: name of the plugin's distribution, such as "farandole-torch".

    Raises:
        ImportError: the versions do not fit; the message has the command that installs fitting ones.
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
