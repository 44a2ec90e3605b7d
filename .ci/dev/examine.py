"""Examines wheels as the package index and its users get them: names, metadata, libraries, installation, times."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.parser import Parser
from pathlib import Path

from dev.portable import NEWEST, version_of

# At most, beside what the wheel needs, and beside the interpreter; time of a processor, since other programs may run.
INSTALL_S, IMPORT_MS = 5.0, 50.0
_LIMIT_S = 180
_VERSIONED = re.compile(r"@([A-Z]+_[0-9.]+)\b")
_KNOWN = re.compile(r"_?Py|_ITM_|__gmon_start__|__cxa_finalize|__tls_get_addr")  # of Python, or weak in every library
SUM = """
import numpy
import farandole.numpy as fnp

fnp.init()
total = fnp.allreduce(numpy.arange(1000, dtype=numpy.float32) + fnp.rank(), op=fnp.Sum)
assert total.tolist() == [2.0 * i + 1.0 for i in range(1000)], total
print("sum is right on", fnp.rank(), "of", fnp.size())
"""


@dataclass
class Examined:
    """A wheel, what was measured, and what is wrong with it."""

    wheel: Path
    oldest: str = ""  # the C library that it needs, by auditwheel
    install_s: float = 0.0
    import_ms: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def distribution(self) -> str:
        return self.wheel.name.split("-")[0]

    @property
    def tags(self) -> str:
        return "-".join(self.wheel.stem.split("-")[2:])

    def row(self) -> str:
        times = f"{self.install_s:.1f} s | {self.import_ms:.0f} ms" if self.install_s else "not installed | "
        size = f"{self.wheel.stat().st_size / 1e6:.2f} MB"
        return f"| {self.distribution} | {self.tags} | {self.oldest or 'any'} | {size} | {times} |"


def table(examined: Sequence[Examined]) -> str:
    head = ["| wheel | for | needs, by auditwheel | size | install | import |", "|---|---|---|---:|---:|---:|"]
    return "\n".join([*head, *(each.row() for each in examined)])


def metadata_of(wheel: Path) -> Message:
    return Parser().parsestr(_member(wheel, ".dist-info/METADATA").decode())


def metadata_faults(wheel: Path) -> list[str]:
    """Entries and files that the index, or a reader of its page, would miss."""
    about, names = metadata_of(wheel), zipfile.ZipFile(wheel).namelist()
    faults = [f"has no {each}" for each in ("Author", "Keywords", "License-Expression", "Summary") if not about[each]]
    licenses = [name for name in names if re.search(r"\.dist-info/licenses/.*LICENSE", name)]
    faults += [] if licenses and b"Apache License" in _member(wheel, licenses[0]) else ["has no text of the license"]
    labels = {url.partition(",")[0] for url in about.get_all("Project-URL") or []}
    faults += [f"has no address of its {each}" for each in ("Documentation", "Source", "Issues") if each not in labels]
    faults += [] if about.get_all("Classifier") else ["has no classifier"]
    text = about.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)", text if isinstance(text, str) else "")
    faults += [f"has a README with the relative link {link}" for link in links if not re.match(r"https://|#", link)]
    return faults


def library_faults(wheel: Path, folder: Path) -> list[str]:
    """Symbols of the wheel's libraries that an older system lacks, by readelf: auditwheel sees only versioned ones."""
    faults = []
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        if name.endswith(".so"):
            faults += [] if suffix_fits(name, wheel) else [f"has {name}, which is of another Python or machine"]
            library = archive.extract(name, folder)
            command = ["readelf", "--dyn-syms", "--wide", library]
            listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            faults += [f"has {name}, which {fault}" for fault in symbol_faults(listing)]
    return faults


def suffix_fits(library: str, wheel: Path) -> bool:
    """True where the Python of a wheel would import this library of it, and where nothing imports it."""
    _, _, python, _, platform = wheel.stem.split("-")
    machine = platform.partition("_2_28_")[2] or platform.removeprefix("linux_")
    found = re.search(r"\.cpython-(\d+)-(\w+)-linux-gnu\.so$", library)
    return not found or (found[1], found[2]) == (python.removeprefix("cp"), machine)


def symbol_faults(listing: str) -> list[str]:
    """The undefined symbols in a listing of readelf that are too new, or that no library promises to have."""
    faults = []
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] != "UND":
            continue
        name, found = fields[7].partition("@")[0], _VERSIONED.search(fields[7])
        if not found and not _KNOWN.match(name):
            faults.append(f"needs {name} of no version")
        version = version_of(found[1]) if found else None
        if version and version.family in NEWEST and not version.is_old:
            faults.append(f"needs {name} of {version.text}")
    return faults


def oldest_system(auditwheel: Path, wheel: Path) -> str:
    """The oldest platform that auditwheel finds the wheel fit for; "" for one without compiled parts."""
    if wheel.name.endswith("-any.whl"):
        return ""
    said = subprocess.run([auditwheel, "show", wheel], capture_output=True, text=True, check=False)
    found = re.search(r'"((?:many)?linux_\w+)"', said.stdout)
    return found[1] if found else f"unknown: {said.stderr.strip()}"


class Fresh:
    """An environment without a compiler in reach, for a Python of one version."""

    def __init__(self, home: Path, python: str) -> None:
        self.home, self.bin = home, home / "bin"
        subprocess.run([python, "-m", "venv", "--without-pip", str(home)], check=True)
        kept = {name: value for name, value in os.environ.items() if name not in ("PATH", "PYTHONPATH", "CXX", "CC")}
        self.environment = {**kept, "PATH": str(self.bin)}

    def pip(self, pip: Path, *arguments: str) -> float:
        """Install without compiling; returns the seconds."""
        begin = _used_s()
        options = ["--python", str(self.bin / "python"), "--disable-pip-version-check", "install", "--quiet"]
        self._run(str(pip), *options, "--only-binary", ":all:", *arguments)
        return _used_s() - begin

    def run(self, *command: str) -> str:
        return self._run(str(self.bin / command[0]), *command[1:])

    def milliseconds(self, module: str, runs: int = 15) -> float:
        """The time of an import, less that of the interpreter alone; the least of each, since others slow both."""
        times: dict[str, list[float]] = {f"import {module}": [], "pass": []}
        for _ in range(runs):
            for code, found in times.items():
                begin = _used_s()
                self.run("python", "-c", code)
                found.append((_used_s() - begin) * 1000)
        with_it, alone = (min(found) for found in times.values())
        return with_it - alone

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


def _used_s() -> float:
    """The processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def install_core(each: Examined, fresh: Fresh, pip: Path) -> None:
    """Install the core's wheel alone, import it, ask the doctor, add on two ranks."""
    required = metadata_of(each.wheel).get_all("Requires-Dist") or []
    fresh.pip(pip, *(text for text in required if "extra ==" not in text), "numpy")
    each.install_s = fresh.pip(pip, "--no-deps", "--no-index", str(each.wheel))
    each.import_ms = fresh.milliseconds("farandole")
    fresh.run("farandole", "doctor")
    script = fresh.home / "add.py"
    script.write_text(SUM)
    said = fresh.run("farandole", "run", "-np", "2", "python", str(script))
    each.faults += [f"adds wrongly: {said}" for rank in (0, 1) if f"sum is right on {rank} of 2" not in said]
    each.faults += [f"takes {each.install_s:.1f} s to install"] if each.install_s > INSTALL_S else []
    each.faults += [f"takes {each.import_ms:.0f} ms to import"] if each.import_ms > IMPORT_MS else []


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _member(wheel: Path, ending: str) -> bytes:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(ending)]
    return archive.read(name)
