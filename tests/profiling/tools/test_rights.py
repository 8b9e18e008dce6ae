"""What the kernel lets a process do, as read from its own files."""

import pytest

from labkit.profiling.tools import rights
from labkit.profiling.tools.rights import has_capability, in_container


@pytest.mark.parametrize(
    ("effective", "has"),
    [
        ("000001ffffffffff", {"SYS_PTRACE", "SYS_ADMIN", "PERFMON"}),  # root
        ("0000000000000000", set()),  # an ordinary user
        ("00000000a80425fb", set()),  # root in a container of Docker as it starts one (docs.docker.com)
        ("00000000a80c25fb", {"SYS_PTRACE"}),  # with --cap-add=SYS_PTRACE
        ("00000040a80425fb", {"PERFMON"}),  # with --cap-add=PERFMON
    ],
)
def test_capabilities_are_read_from_the_kernel(tmp_path, monkeypatch, effective, has):
    monkeypatch.setattr(rights, "STATUS", tmp_path / "status")
    rights.STATUS.write_text(f"Name:\tpython\nCapInh:\t0000000000000000\nCapEff:\t{effective}\nCapBnd:\t{'f' * 16}\n")
    assert {name for name in rights.CAPABILITIES if has_capability(name)} == has
    assert has_capability("SYS_ADMIN", "PERFMON") == bool(has & {"SYS_ADMIN", "PERFMON"})


def test_systems_without_capabilities_lack_none(tmp_path, monkeypatch):
    monkeypatch.setattr(rights, "STATUS", tmp_path / "none")
    assert has_capability("SYS_ADMIN")


def test_a_container_is_known_by_its_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(rights, "CONTAINER_MARKS", (tmp_path / ".dockerenv",))
    assert not in_container()
    (tmp_path / ".dockerenv").touch()
    assert in_container()
