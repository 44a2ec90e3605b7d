"""The module `horovod` on Farandole: programs written for Horovod 0.28.1 run unchanged.

Its names are those of Farandole's plugins. `docs/guide/coming-from-horovod.md` says what differs on purpose.
"""

from farandole.plugin import version_of as _version_of

_version_of("farandole-horovod")  # refuses a core that does not fit, before anything is missing in it

# isort: split
from farandole import NotInitializedError as _NotInitializedError  # noqa: E402
from farandole import __version__ as __farandole_version__  # noqa: E402
from farandole.plugin import register_plugin as _register_plugin  # noqa: E402

from horovod._environment import check_alone as _check_alone  # noqa: E402

_check_alone()
_NotInitializedError.drop_in_message = "Horovod has not been initialized; use hvd.init() first"  # which programs match
_register_plugin(__name__)  # a line that an error names is of the program, not of a function here

from horovod._later import attribute_error as _attribute_error  # noqa: E402
from horovod.runner import run  # noqa: E402

__version__ = "0.28.1"  # of the API; clients such as SynapseML accept no suffix

__all__ = ["run"]


def __getattr__(name: str) -> object:
    raise _attribute_error(__name__, name)
