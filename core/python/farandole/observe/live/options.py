"""The page and the metrics to serve beside a job, from the options of `farandole run` and `farandole live`."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

from farandole.launch.files import read_text
from farandole.launch.messages import shown
from farandole.launch.spec import Metrics, SpecError
from farandole.observe.live.command import Wanted
from farandole.observe.live.server import ADDRESS

_SECRET = re.compile(r"[A-Za-z0-9_.~+-]{16,256}")


def wanted(page_port: int | None, given: Metrics) -> Wanted | None:
    """The page and the metrics that are asked for; None: neither. Raises SpecError, FileError."""
    address, secret_file = given.metrics_address, given.metrics_key_file
    if given.metrics is None and (address is not None or secret_file is not None):
        raise SpecError("--metrics-address and --metrics-key-file need --metrics PORT.", "metrics")
    if page_port is None and given.metrics is None:
        return None
    try:
        where = ADDRESS if address is None else str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise SpecError(
            f"--metrics-address wants an IPv4 address of this host, not {shown(address)}.", "metrics_address"
        ) from error
    return Wanted(page_port, given.metrics, where, "" if secret_file is None else _secret(secret_file))


def _secret(path: Path) -> str:
    where = f"--metrics-key-file {path}"
    text = read_text(path, where, "file of a secret", 4096).strip()
    if not _SECRET.fullmatch(text):
        raise SpecError(f"{where} must hold one word of 16 to 256 letters, digits and _.~+-; make one with uuidgen.")
    return text
