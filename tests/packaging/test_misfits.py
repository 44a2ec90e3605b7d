"""A plugin without a core, or with one of another version, is refused with one sentence that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = {
    "farandole-horovod": ("plugins/horovod/src", "horovod"),
    "farandole-mxnet": ("plugins/mxnet/src", "farandole_mxnet"),
    "farandole-ray": ("plugins/ray/src", "farandole_ray"),
    "farandole-tensorflow": ("plugins/tensorflow/src", "farandole_tensorflow"),
    "farandole-spark": ("plugins/spark/src", "farandole_spark"),
    "farandole-torch": ("plugins/torch/src", "farandole_torch"),
}
each_plugin = pytest.mark.parametrize("plugin", PLUGINS)


def said(plugin: str, *more: Path) -> str:
    """The last line that an import of the plugin ends with, where nothing but `more` is installed."""
    folder, module = PLUGINS[plugin]
    paths = ":".join(map(str, [ROOT / folder, *more]))
    command = [sys.executable, "-S", "-c", f"import {module}"]
    done = subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    return done.stderr.splitlines()[-1]


def installed(folder: Path, distribution: str, version: str) -> None:
    """As pip notes a distribution, without its files."""
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")


def core(folder: Path, version: str) -> None:
    (folder / "farandole").mkdir(parents=True)
    (folder / "farandole" / "__init__.py").write_text(f'__version__ = "{version}"\n')


@each_plugin
def test_without_the_core(plugin: str, tmp_path: Path) -> None:
    installed(tmp_path, plugin, "0.1.3")
    told = f"{plugin} needs farandole, which is not installed: python -m pip install 'farandole==0.1.*'"
    assert said(plugin, tmp_path) == f"ImportError: {told}"


@each_plugin
@pytest.mark.parametrize("version", ["0.2.0", "0.0.9", "1.1.3"])
def test_with_a_core_of_another_version(plugin: str, version: str, tmp_path: Path) -> None:
    installed(tmp_path, plugin, "0.1.3")
    core(tmp_path, version)
    told = f"ImportError: {plugin} 0.1.3 does not fit farandole {version}, which needs the same first two numbers: "
    assert said(plugin, tmp_path) == f"{told}python -m pip install --upgrade 'farandole==0.1.*' '{plugin}==0.1.*'"


def test_a_core_that_fits_is_taken(tmp_path: Path) -> None:
    installed(tmp_path, "farandole-torch", "0.1.3")
    core(tmp_path, "0.1.0")
    assert "fit" not in said("farandole-torch", tmp_path)  # it goes on, and misses something else


def test_the_cores_own_missing_packages_are_named(tmp_path: Path) -> None:
    (tmp_path / "farandole").mkdir()
    (tmp_path / "farandole" / "__init__.py").write_text("import absent_package\n")
    assert said("farandole-torch", tmp_path) == "ModuleNotFoundError: No module named 'absent_package'"


def test_the_plugins_copies_of_the_check_are_alike() -> None:
    texts = {
        (ROOT / folder / module / "_fit.py").read_text().replace(f'"{plugin}"', '"@"')
        for plugin, (folder, module) in PLUGINS.items()
    }
    assert len(texts) == 1


def test_a_python_that_is_too_old_is_named() -> None:
    text = (ROOT / "core/python/farandole/__init__.py").read_text()
    check = text[: text.index("# isort: split")].replace("import sys as _sys", "")

    class Old:
        version_info, version = (3, 9, 18), "3.9.18 (main)"

    with pytest.raises(ImportError, match=r"needs Python 3\.10 .* is 3\.9\.18: .*python -m pip install farandole$"):
        exec(check, {"_sys": Old})
