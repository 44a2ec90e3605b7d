"""A sentence for each part of Horovod that Farandole has not, with the way that there is."""

from __future__ import annotations

_INSTEAD = {
    **dict.fromkeys(
        ("spark.keras", "spark.lightning", "spark.torch"),
        "estimators of Spark ML come with a later release; train in a function that horovod.spark.run calls",
    ),
    "data": "the frameworks have loaders that work ahead: torch.utils.data.DataLoader with num_workers, "
    "tf.data.Dataset.prefetch, horovod.tensorflow.data",
}


def _sentence(what: str) -> str:
    return f"Farandole has no {what}: {_INSTEAD[_part(what)]}"


def _part(what: str) -> str:
    """`horovod.spark.torch` -> spark.torch."""
    return what.removeprefix("horovod.") if what.startswith("horovod.spark.") else what.rpartition(".")[2]


def import_error(module: str) -> ImportError:
    """The error for a module that Horovod has."""
    return ImportError(_sentence(module), name=module)


def attribute_error(module: str, name: str) -> AttributeError:
    """The error for a name that `module` lacks, whether Horovod has it or not."""
    if _part(f"{module}.{name}") in _INSTEAD:
        return AttributeError(_sentence(f"{module}.{name}"))
    return AttributeError(f"module {module!r} has no attribute {name!r}")
