"""Elastic training: what a plugin's states copy, and how its loaders share out data to changing ranks."""

from farandole._elastic.handlers import StateDictHandler, StateHandler, VariablesHandler
from farandole._elastic.loaders import ElasticLoader, PlannedBatches
from farandole._elastic.loop import run_within

__all__ = [
    "ElasticLoader",
    "PlannedBatches",
    "StateDictHandler",
    "StateHandler",
    "VariablesHandler",
    "run_within",
]
