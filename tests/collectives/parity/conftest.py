from faces import FRAMEWORKS
from farandole import testing

_MORE = {"torch": "torch._dynamo", "tensorflow": "keras"}  # imported at a first use

testing.preload(*FRAMEWORKS, *(more for name, more in _MORE.items() if name in FRAMEWORKS))
