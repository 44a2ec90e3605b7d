"""Running several ranks in a test, and the suite that every plugin must pass (`farandole.testing.conformance`)."""

from farandole.testing._ranks import RanksFailed, rank_environments
from farandole.testing._starting import preload
from farandole.testing._world import Ended, World, spawn, world

__all__ = ["Ended", "RanksFailed", "World", "preload", "rank_environments", "spawn", "world"]
