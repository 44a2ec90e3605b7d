"""Not there yet."""

from horovod._later import import_error

raise import_error(__name__)
