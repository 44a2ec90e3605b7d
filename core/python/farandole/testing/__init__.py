"""Running several ranks in a test, and the suite that every plugin must pass (`farandole.testing.conformance`)."""

from farandole.testing._ranks import RanksFailed, rank_environments
from farandole.testing._spawn import spawn
from farandole.testing._world import World, world

__all__ = ["RanksFailed", "World", "rank_environments", "spawn", "world"]
