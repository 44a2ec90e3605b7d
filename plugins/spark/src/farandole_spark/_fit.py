"""Refuses a core that is missing or of another version, with the command that installs the right one.

It runs before anything else of Farandole is imported, since such a core may lack what the plugin needs. So it cannot
lie in the core, and every plugin has a copy that differs in one line. Versions of one minor number fit each other.
"""

from importlib import metadata

DISTRIBUTION = "farandole-spark"

try:
    VERSION = metadata.version(DISTRIBUTION)
except metadata.PackageNotFoundError:
    VERSION = ""  # it runs from its source tree
_minor = ".".join(VERSION.split(".")[:2])

try:
    from farandole import __version__ as _core
except ImportError as error:
    if error.name != "farandole":  # something else is missing in it
        raise
    _wanted = f"farandole=={_minor}.*" if VERSION else "farandole"
    raise ImportError(
        f"{DISTRIBUTION} needs farandole, which is not installed: python -m pip install '{_wanted}'", name="farandole"
    ) from None

if VERSION and ".".join(_core.split(".")[:2]) != _minor:
    raise ImportError(
        f"{DISTRIBUTION} {VERSION} does not fit farandole {_core}, which needs the same first two numbers: "
        f"python -m pip install --upgrade 'farandole=={_minor}.*' '{DISTRIBUTION}=={_minor}.*'",
        name="farandole",
    )
VERSION = VERSION or _core
