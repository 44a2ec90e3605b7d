"""Builds that run with older C libraries: the system's compiler, linked against an interface of glibc 2.28.

A function of glibc keeps its older versions for programs that were linked long ago, but a linker binds the newest. So
this module writes libraries without code ("stubs") for the linker, which name the newest version that glibc 2.28 and
the libstdc++ of GCC 8 have of each symbol of this system's libraries. The linker takes the few functions of libstdc++
that are newer from its static library, as Red Hat's compilers for manylinux do. old_libc.h and old_libc.c replace the
three symbols of glibc that have no older version.

The compiler stays the one that everyone has: exceptions, `std::function` and `std::runtime_error` are those of the
libstdc++ that frameworks use, which the plugins rely on.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GLIBC = (2, 28)
NEWEST = {"GLIBC": GLIBC, "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}  # what manylinux_2_28 allows
STUBBED = ("libc.so.6", "libm.so.6", "libstdc++.so.6")
# Before glibc 2.34 these were libraries of their own, and a program must name them to have them loaded.
FORMER = {"libdl.so.2": "dl", "librt.so.1": "shm_|mq_|aio_|timer_|lio_", "libpthread.so.0": ""}  # which functions
_SYMBOL = re.compile(r" (\d+) (FUNC|IFUNC|OBJECT)\s+(?:GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+\d+ ([^@\s]+)@@?(\S+)")


@dataclass(frozen=True)
class Symbol:
    """A symbol of a library, with the version that the linker shall bind."""

    name: str
    version: str  # such as GLIBC_2.14
    size_bytes: int
    is_data: bool
    has_moved: bool  # into libc.so.6 with glibc 2.34


def numbers_of(version: str) -> tuple[int, ...]:
    """GLIBC_2.14 -> (2, 14); nothing for a private one."""
    text = version.partition("_")[2]
    return tuple(map(int, text.split("."))) if re.fullmatch(r"[\d.]+", text) else ()


def is_old(version: str) -> bool:
    newest = NEWEST.get(version.partition("_")[0], ())
    return () < numbers_of(version) <= newest


def old_symbols(listing: str) -> Iterator[Symbol]:
    """The symbols in a listing of readelf, each with the newest version that is old enough, if it has one."""
    found: dict[str, list[tuple[str, int, str]]] = {}
    for size, kind, name, version in _SYMBOL.findall(listing):
        found.setdefault(name, []).append((version, int(size), kind))
    for name, versions in found.items():
        old = [each for each in versions if is_old(each[0])]
        if old:
            version, size, kind = max(old, key=lambda each: numbers_of(each[0]))
            moved = any(each == "GLIBC_2.34" for each, _, _ in versions)
            yield Symbol(name, version, size, kind == "OBJECT", moved)


def library_of(symbol: Symbol, soname: str) -> str:
    """The library that has this symbol in glibc 2.28."""
    if soname != "libc.so.6" or not symbol.has_moved:
        return soname
    return next(former for former, names in FORMER.items() if re.match(names, symbol.name))


def assembler_of(symbols: list[Symbol]) -> str:
    lines = []
    for at, each in enumerate(symbols):
        kind, size = ("object", max(each.size_bytes, 1)) if each.is_data else ("function", 8)
        section = ".data" if each.is_data else ".text"
        lines += [section, f".globl stub_{at}", f".type stub_{at}, %{kind}", f"stub_{at}: .zero {size}"]
        lines += [f".size stub_{at}, {size}", f".symver stub_{at}, {each.name}@@{each.version}, remove"]
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def make_toolchain(folder: Path) -> Path:
    """Write the stubs for this machine's compiler, and the file that tells CMake to use them; returns that file."""
    folder.mkdir(parents=True, exist_ok=True)
    symbols = [
        (library_of(symbol, soname), symbol)
        for soname in STUBBED
        for symbol in old_symbols(_output_of("readelf", "--dyn-syms", "--wide", _found(soname)))
    ]
    for soname in (*STUBBED, *FORMER):
        _stub(folder / soname, [symbol for library, symbol in symbols if library == soname])
    _write_link_names(folder)
    link = f"-L{folder} -Wl,--exclude-libs,ALL -Wl,--as-needed -Wl,--strip-debug -Wl,--build-id=sha1"
    link += " -Wl,--allow-shlib-undefined"  # of this system's libgcc_s.so.1, which asks for its own glibc
    flags = f"-include {HERE / 'old_libc.h'}"
    for place, name in (("CMAKE_SOURCE_DIR", "farandole"), ("CMAKE_BINARY_DIR", "build")):
        flags += f" -ffile-prefix-map=${{{place}}}=/{name}"  # in the compiled code: equal wherever it is built
    lines = [f'set(CMAKE_CXX_FLAGS_INIT "{flags}")']
    lines += [f'set(CMAKE_{kind}_LINKER_FLAGS_INIT "{link}")' for kind in ("MODULE", "SHARED", "EXE")]
    toolchain = folder / "toolchain.cmake"
    toolchain.write_text("\n".join([*lines, ""]))
    return toolchain


def _stub(library: Path, symbols: list[Symbol]) -> None:
    source, script = Path(f"{library}.s"), Path(f"{library}.map")
    source.write_text(assembler_of(symbols))
    script.write_text("".join(f"{version} {{ }};\n" for version in sorted({each.version for each in symbols})))
    link = ["-shared", "-nostdlib", f"-Wl,-soname,{library.name}", f"-Wl,--version-script,{script}"]
    _output_of("gcc", *link, "-o", library, source)


def _write_link_names(folder: Path) -> None:
    """The names by which the linker looks for libraries: the stubs, then what replaces newer symbols."""
    _output_of("gcc", "-O2", "-fPIC", "-c", HERE / "old_libc.c", "-o", folder / "old_libc.o")
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[platform.machine()]
    _output_of("ar", "rcsD", folder / "libold.a", folder / "old_libc.o")
    libc = f"{folder / 'libc.so.6'} {folder / 'libold.a'} {_found('libc_nonshared.a')}"
    former = " ".join(str(folder / soname) for soname in FORMER)
    scripts = {soname[3 : soname.index(".")]: str(folder / soname) for soname in ("libm.so.6", *FORMER)}
    scripts["c"] = f"{libc} AS_NEEDED({former} {_found(loader)})"
    scripts["stdc++"] = f"{folder / 'libstdc++.so.6'} {_found('libstdc++.a')}"
    for name, inputs in scripts.items():
        (folder / f"lib{name}.so").write_text(f"INPUT({inputs})\n")


def _found(file: str) -> Path:
    """Where the compiler finds this file of its system."""
    path = Path(_output_of("g++", f"-print-file-name={file}").strip())
    if not path.is_absolute():
        raise FileNotFoundError(f"g++ has no {file}: install the C++ compiler and its static library")
    return path.resolve()


def _output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
