"""The one door to the compiled core, opened at first use.

The launcher and `import farandole` also run where the compiled module must not be loaded (it is built for one Python
and one platform). `core` looks like the module; the first attribute asked of it loads the module and registers our
exception classes, and from then on every name is found directly.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from farandole._api import errors
from farandole._api.handles import Handle, MappedHandle
from farandole._runtime import call_sites

if TYPE_CHECKING:
    from farandole import _core as core
else:

    class _LazyCore:
        def __getattr__(self, name: str) -> Any:
            module = _load()
            self.__dict__.update(vars(module))
            return getattr(module, name)

    core = _LazyCore()

__all__ = ["core"]


def _load() -> Any:
    try:
        from farandole import _core
    except ImportError as error:
        raise ImportError(_why_missing(error)) from error
    _core.set_error_types(errors.TYPES_BY_KIND)
    _core.set_site_function(call_sites.call_site)
    _core.set_map_function(MappedHandle)
    Handle.register(_core.Handle)
    return _core


def _why_missing(error: ImportError) -> str:
    version = ".".join(map(str, sys.version_info[:2]))
    if "is in this process twice" in str(error):
        return str(error)
    if not sys.platform.startswith("linux"):
        return f"farandole runs on Linux (x86-64 and aarch64); this is {sys.platform}"
    return (
        f"farandole's compiled core cannot be loaded in Python {version} ({error}); "
        "reinstall it for this interpreter: python -m pip install --force-reinstall farandole"
    )
