"""Render the conda recipe for every platform and Python of conda-forge; build and test some of its packages here.

No conda channel is needed, since this makes one: the package `python` holds the Python that runs this, with the build
tools from the package index, and the compiler and all other requirements are empty packages beside it, so the system's
compiler is used. `python3 noxfile.py -s conda` starts this; names of packages after `--` choose those that are built.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import yaml
import zstandard
from rattler_build import (
    JinjaConfig,
    PlatformConfig,
    RenderConfig,
    RenderedVariant,
    Stage0Recipe,
    ToolConfiguration,
    VariantConfig,
    assemble_package,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
# -> the newest Python 3
COMPILED = {"farandole": 14, "farandole-torch": 14, "farandole-tensorflow": 14, "farandole-mxnet": 11}
PURE = ("farandole-ray", "farandole-spark", "farandole-horovod")
TESTED = ("farandole", "farandole-horovod")  # the others need their frameworks
TOOLS = ["pip", "scikit-build-core", "pybind11>=3,<4", "cmake", "ninja", "hatchling"]
TOOLS += ["cloudpickle", "click", "psutil", "packaging", "pyyaml", *(["tomli"] if sys.version_info < (3, 11) else [])]


def main() -> None:
    work, names = Path(sys.argv[1]), sys.argv[2:] or ["farandole", "farandole-torch", "farandole-tensorflow", *PURE]
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for target in ("linux-64", "linux-aarch64"):
        check_rendered(target, rendered(HERE / "recipe.yaml", target))
    own = "linux-aarch64" if platform.machine() == "aarch64" else "linux-64"
    variants = [each for each in rendered(local_recipe(work), own, OWN) if name_of(each) in names]
    channel = make_channel(work / "channel", own, variants)
    for variant in variants:
        test = "native" if name_of(variant) in TESTED and "farandole" in names else "skip"
        result = variant.run_build(
            ToolConfiguration(test_strategy=test), work / "packages", [channel.as_uri()], no_build_id=True
        )
        for package in result.packages:
            files = check_package(Path(package), name_of(variant))
            print(f"==> {Path(package).name}: {files} files, {'tested' if test == 'native' else 'built'}", flush=True)


def rendered(recipe: Path, target: str, only: str = "") -> list[RenderedVariant]:
    """What conda-forge's machines, which are x86-64, would build for this platform."""
    machine = PlatformConfig(
        target_platform=target, build_platform=target if only else "linux-64", host_platform=target
    )
    variants = VariantConfig.from_file(HERE / "conda_forge_pinning.yaml")
    if only:
        variants = variants.merge(VariantConfig({"python": [only], "python_min": [only]}))
    of_recipe = VariantConfig.from_conda_build_config(HERE / "conda_build_config.yaml", JinjaConfig(platform=machine))
    return Stage0Recipe.from_file(recipe).render(variants.merge(of_recipe), RenderConfig(machine))


def name_of(variant: RenderedVariant) -> str:
    return str(variant.recipe.package.name)


def check_rendered(target: str, variants: Iterable[RenderedVariant]) -> None:
    """Fail unless there is each package for each Python, with what the platform's compiler and the core's pin are."""
    found = Counter((name_of(each), each.variant.get("python", "")) for each in variants)
    wanted = {(name, version) for name, newest in COMPILED.items() for version in PYTHONS if _minor(version) <= newest}
    assert set(found) == wanted | {(name, "") for name in PURE}, found
    for each in variants:
        needs = each.recipe.requirements.to_dict()
        if name_of(each) in COMPILED:
            assert f"gxx_{target} 14.*" in needs["build"] and f"sysroot_{target} 2.28.*" in needs["build"], needs
        if name_of(each) != "farandole":
            assert any("farandole" in str(need) for need in needs["run"]), needs
    print(f"==> {target}: {len(found)} packages of Python {PYTHONS[0]} to {PYTHONS[-1]}", flush=True)


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def local_recipe(work: Path) -> Path:
    """The recipe with the last commit of this tree as its source."""
    sources = work / "sources"
    sources.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    (work / "sources.tar").write_bytes(archive)
    with tarfile.open(work / "sources.tar") as tar:
        tar.extractall(sources, filter="data")
    recipe = yaml.safe_load((HERE / "recipe.yaml").read_text())
    recipe["source"] = {"path": str(sources)}
    path = work / "recipe" / "recipe.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return path


# ---- The channel -----------------------------------------------------------------------------------------------------


def make_channel(channel: Path, target: str, variants: Iterable[RenderedVariant]) -> Path:
    """A channel with every package that the builds and tests of these variants require."""
    python = stage_python(channel.parent / "python")
    records: dict[str, dict[str, object]] = {"noarch": {}, target: {}}
    _add(records[target], channel / target, target, "python", sys.version.split()[0], files_dir=python)
    own = {name_of(each) for each in variants}
    for name, version in sorted(_required(variants) - {(each, "") for each in own}):
        if name not in {"python", *own}:
            _add(records[target], channel / target, target, name, version)
    for folder, packages in records.items():
        (channel / folder).mkdir(exist_ok=True)
        index = {"info": {"subdir": folder}, "packages": {}, "packages.conda": packages, "repodata_version": 1}
        (channel / folder / "repodata.json").write_text(json.dumps(index))
    return channel


def _required(variants: Iterable[RenderedVariant]) -> set[tuple[str, str]]:
    """Names of packages, with a version that meets what is asked for."""
    found: dict[str, str] = {}
    for each in variants:
        needs = each.recipe.requirements.to_dict()
        for need in [str(one) for part in ("build", "host", "run") for one in needs.get(part, [])]:
            name, _, condition = need.partition(" ")
            number = re.search(r"\d+(\.\d+)*", condition)
            if re.fullmatch(r"[a-z0-9_.-]+", name):
                found[name] = max(found.get(name, ""), number[0] if number else "", key=len) or "1"
    return set(found.items())


def _add(
    records: dict[str, object], folder: Path, target: str, name: str, version: str, files_dir: Path | None = None
) -> None:
    empty = folder.parent / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    made = assemble_package(
        name, version, target, "0", folder, files_dir=files_dir or empty, compression_level=1, detect_prefix=False
    )
    content = made.path.read_bytes()
    record = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": [], "subdir": target}
    records[made.path.name] = {**record, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def stage_python(target: Path) -> Path:
    """A copy of the Python that runs this, with the tools."""
    base, library = Path(sys.base_prefix), f"lib/python{OWN}"
    left_out = shutil.ignore_patterns("__pycache__", "test", "tests", "idlelib", "site-packages", "*.a", "*.pyc")
    shutil.copytree(base / library, target / library, ignore=left_out, symlinks=True)
    shutil.copytree(base / "include", target / "include", symlinks=True)
    for shared in base.glob("lib/libpython*.so*"):
        shutil.copy2(shared, target / "lib", follow_symlinks=False)
    (target / "bin").mkdir()
    shutil.copy2(base / "bin" / f"python{OWN}", target / "bin" / f"python{OWN}")
    for name in ("python", "python3"):
        (target / "bin" / name).symlink_to(f"python{OWN}")
    pip = [sys.executable, "-m", "pip", "--python", str(target / "bin" / "python"), "install", "--no-compile"]
    subprocess.run([*pip, "--quiet", "--no-warn-script-location", *TOOLS], check=True)
    return target


# ---- What was built --------------------------------------------------------------------------------------------------


def check_package(package: Path, name: str) -> int:
    """The number of files; fail where the package holds what belongs to another one."""
    with zipfile.ZipFile(package) as parts:
        (member,) = [each for each in parts.namelist() if each.startswith("pkg-")]
        plain = zstandard.ZstdDecompressor().stream_reader(parts.open(member))
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            files = [each.name for each in tar if each.isfile()]
    module = "horovod" if name == "farandole-horovod" else name.replace("-", "_")
    inside = [re.sub(r".*site-packages/", "", each) for each in files if "site-packages/" in each]
    tops = {each.partition("/")[0] for each in inside if ".dist-info" not in each}
    allowed = {module, "sparkdl"} if module == "horovod" else {module, f"{module}_autoload.py"}
    assert module in tops and tops <= allowed, tops
    return len(files)


if __name__ == "__main__":
    main()
