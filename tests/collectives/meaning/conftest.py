import importlib.util

from farandole import testing

if importlib.util.find_spec("torch"):  # which `-s version -- core 3.13` does not have
    testing.preload("torch")
