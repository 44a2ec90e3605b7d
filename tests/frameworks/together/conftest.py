from farandole import testing
from pair import FRAMEWORKS

testing.preload(*FRAMEWORKS)
