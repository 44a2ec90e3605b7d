import importlib.util

from farandole import testing

if importlib.util.find_spec("torch"):  # which the sessions core(version=...) do not have
    testing.preload("torch")
