"""The launcher as the child of a program that called `farandole.run`: it ends with that program, however that ends."""

from __future__ import annotations

import sys
from typing import NoReturn

from farandole.launch import cli, guard


def main() -> NoReturn:
    """Run the command line behind the first argument, the id of the parent."""
    guard.die_with_parent(int(sys.argv[1]))  # the inner process then finds its lifeline closed, and ends the ranks
    cli.main(sys.argv[2:])
