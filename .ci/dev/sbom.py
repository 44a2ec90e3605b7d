"""The bill of materials of a release, as CycloneDX has it. Runs in the environment with the release tools.

Its arguments: the file to write, the version, the time of the commit, the version of Gloo, the wheels.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from datetime import datetime, timezone
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL


def component_of(wheel: Path) -> tuple[Component, list[str]]:
    """A wheel, and the distributions that it requires without any of its extras."""
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    about = Parser().parsestr(archive.read(name).decode())
    component = Component(
        type=ComponentType.LIBRARY,
        name=about["Name"],
        version=about["Version"],
        description=about["Summary"],
        bom_ref=wheel.name,
        purl=PackageURL("pypi", None, about["Name"], about["Version"], {"file_name": wheel.name}),
        licenses=[LicenseFactory().make_from_string(about["License-Expression"])],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())],
    )
    required = [text for text in about.get_all("Requires-Dist") or [] if "extra ==" not in text]
    return component, [re.split(r"[^\w.-]", text)[0] for text in required]


def compiled_in(name: str, version: str, license_name: str) -> Component:
    made = LicenseFactory().make_from_string(license_name)
    return Component(type=ComponentType.LIBRARY, name=name, version=version, bom_ref=name, licenses=[made])


def main() -> None:
    """Write TARGET."""
    target, version, seconds, gloo, *wheels = sys.argv[1:]
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"farandole {version} {seconds}"))
    bom.metadata.timestamp = datetime.fromtimestamp(int(seconds), timezone.utc)
    release = Component(type=ComponentType.FRAMEWORK, name="farandole", version=version, bom_ref="release")
    bom.metadata.component = release
    inside = {
        "farandole": [compiled_in("pybind11", metadata.version("pybind11"), "BSD-3-Clause")],
        "farandole-gloo": [compiled_in("gloo", gloo, "BSD-3-Clause")],
    }
    runtime = compiled_in("libstdc++, parts", "12", "GPL-3.0-or-later WITH GCC-exception-3.1")
    others: dict[str, Component] = {}
    for wheel in map(Path, wheels):
        component, required = component_of(wheel)
        bom.components.add(component)
        parts = [] if wheel.name.endswith("-any.whl") else [*inside.get(component.name, []), runtime]
        for name in required:
            others.setdefault(name, Component(type=ComponentType.LIBRARY, name=name, bom_ref=f"pypi {name}"))
        needed = [*parts, *(others[name] for name in required)]
        bom.components.update(needed)
        bom.register_dependency(component, needed)
        bom.register_dependency(release, [component])
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    Path(target).write_text(outputter.output_as_string(indent=2) + "\n")


if __name__ == "__main__":
    main()
