"""The parts of elastic training that need no framework, from farandole.elastic."""

from farandole.elastic import ObjectState, State, run
