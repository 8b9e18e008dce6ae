"""A worker cut off from the network keeps its loopback; where the system refuses a part of it, nothing is changed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="network name spaces are Linux's")
LOOPBACK = "import socket; own = socket.create_server(('127.0.0.1', 0)); socket.create_connection(own.getsockname())"


def test_the_loopback_works_whether_the_system_allows_it_or_not():
    program = f"from labkit.course.isolation import leave_network\nleave_network()\n{LOOPBACK}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_refusal_halfway_leaves_the_process_as_it_was():
    program = (
        "import os\nfrom pathlib import Path\nfrom labkit.course import isolation\n"
        "def refuse(*args): raise PermissionError\n"
        "import fcntl; fcntl.ioctl = refuse\n"
        "before = os.readlink('/proc/self/ns/net')\n"
        "assert not isolation.leave_network()\n"
        "assert os.readlink('/proc/self/ns/net') == before\n" + LOOPBACK
    )
    subprocess.run([sys.executable, "-c", program], check=True)
