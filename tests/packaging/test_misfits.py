"""A plugin and a core of another version refuse each other with one sentence that says what to install."""

from __future__ import annotations

import os
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


def said(plugin: str, version: str, folder: Path) -> str:
    """The last line that an import of the plugin, noted as 0.1.3, ends with beside a core of this version."""
    info = folder / f"{plugin.replace('-', '_')}-0.1.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {plugin}\nVersion: 0.1.3\n")
    sources, module = PLUGINS[plugin]
    code = f"import farandole; farandole.__version__ = {version!r}; import {module}; print('imported')"
    paths = ":".join(map(str, [folder, ROOT / sources, *filter(None, sys.path)]))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return (done.stdout + done.stderr).splitlines()[-1]


@each_plugin
@pytest.mark.parametrize("version", ["0.2.0", "0.0.9", "1.1.3"])
def test_with_a_core_of_another_version(plugin: str, version: str, tmp_path: Path) -> None:
    told = f"ImportError: {plugin} 0.1.3 does not fit farandole {version}, which needs the same first two numbers: "
    told += f"python -m pip install --upgrade 'farandole==0.1.*' '{plugin}==0.1.*'"
    assert said(plugin, version, tmp_path) == told


def test_a_core_that_fits_is_taken(tmp_path: Path) -> None:
    assert said("farandole-spark", "0.1.0", tmp_path) == "imported"


def test_a_python_that_is_too_old_is_named() -> None:
    text = (ROOT / "core/python/farandole/__init__.py").read_text()
    check = text[: text.index("# isort: split")].replace("import sys as _sys", "")

    class Old:
        version_info, version = (3, 9, 18), "3.9.18 (main)"

    with pytest.raises(ImportError, match=r"needs Python 3\.10 .* is 3\.9\.18: .*python -m pip install farandole$"):
        exec(check, {"_sys": Old})
