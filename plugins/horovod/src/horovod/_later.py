"""A sentence for each part of Horovod that Farandole has not, with the way that there is."""

from __future__ import annotations

_INSTEAD = {
    "data": "the frameworks have loaders that work ahead: torch.utils.data.DataLoader with num_workers, "
    "tf.data.Dataset.prefetch, horovod.tensorflow.data",
}


def _sentence(what: str) -> str:
    return f"Farandole has no {what}: {_INSTEAD[_last(what)]}"


def _last(what: str) -> str:
    return what.rpartition(".")[2]


def import_error(module: str) -> ImportError:
    """The error for a module that Horovod has."""
    return ImportError(_sentence(module), name=module)


def attribute_error(module: str, name: str) -> AttributeError:
    """The error for a name that `module` lacks, whether Horovod has it or not."""
    if name in _INSTEAD:
        return AttributeError(_sentence(f"{module}.{name}"))
    return AttributeError(f"module {module!r} has no attribute {name!r}")
