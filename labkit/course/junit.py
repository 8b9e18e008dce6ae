"""Results of executed notebooks as a JUnit file, which CI systems show."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from labkit.course.runner import Executed

NOT_XML = re.compile(r"\x1b\[[0-9;]*m|[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Terminal colours, and characters that XML 1.0 has no place for."""


def write_junit(executed: list[Executed], path: Path) -> None:
    """Write one test case a notebook, failed where it has faults."""
    failures = sum(not each.passed for each in executed)
    suite = ElementTree.Element(
        "testsuite",
        name="labkit course",
        tests=str(len(executed)),
        failures=str(failures),
        errors="0",
        time=f"{sum(each.seconds for each in executed):.2f}",
    )
    for each in executed:
        case = ElementTree.SubElement(
            suite, "testcase", classname="notebooks", name=each.source.stem, time=f"{each.seconds:.2f}"
        )
        properties = ElementTree.SubElement(case, "properties")
        for name, value in (
            ("peak_memory_bytes", each.peak_memory_bytes),
            ("cells", each.cells),
            ("figures", each.figures),
        ):
            ElementTree.SubElement(properties, "property", name=name, value=str(value))
        if each.faults:
            faults = [NOT_XML.sub("", fault) for fault in each.faults]
            ElementTree.SubElement(case, "failure", message=faults[0]).text = "\n".join(faults)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
