"""The launcher as the child of a program that called `farandole.run`: it ends with that program, however that ends."""

from __future__ import annotations

import sys
from typing import NoReturn

from farandole.launch import cli, environment, guard
from farandole.launch.description import Caller


def main() -> NoReturn:
    """Run the command line behind the first arguments: the id of the parent, and what it has handed to us."""
    parent, call, outcomes, stderr = map(int, sys.argv[1:5])
    engine, _, hub = sys.argv[5].partition(":")
    guard.die_with_parent(parent)  # the inner process then finds its lifeline closed, and ends the ranks
    environment.forget_options()
    cli.main(sys.argv[6:], Caller(call, outcomes, stderr, engine, hub))
