"""The warm server: who gets a process of it, what ends with what, and that nothing hangs where it fails."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from processes import gone, wait_for, warm_server_variables, warm_servers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely, and has pidfds")
LABKIT = [sys.executable, "-m", "labkit"]
REFUSED = [*LABKIT, "train", "dlrm", "--max-epochs", "none"]
"""Ends before it has imported torch"""


@pytest.fixture(scope="module")
def environment():
    with warm_server_variables() as own:
        yield os.environ | own


@pytest.fixture
def server(environment, tmp_path_factory) -> psutil.Process:
    """The server, left by a command if there is none."""
    folder = environment["XDG_RUNTIME_DIR"]
    if not warm_servers(folder):
        train(environment, tmp_path_factory.mktemp("first"), "--max-seconds", "0.1").wait(120)
    (found,) = wait_for(lambda: [*Path(folder).glob("labkit-*/*.sock")] and warm_servers(folder))
    wait_for(lambda: "cold" not in run(REFUSED, environment).stderr)  # it has imported, and answers
    return found


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def train(environment: dict[str, str], folder: Path, *more: str) -> subprocess.Popen:
    command = [*LABKIT, "train", "dlrm", "--target", "none", "--runs-dir", str(folder / "runs"), *more]
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def begun(server: psutil.Process, environment: dict[str, str], folder: Path) -> tuple[subprocess.Popen, psutil.Process]:
    """A command whose run has begun in a process of the server."""
    command = train(environment, folder, "--max-seconds", "600")
    wait_for(
        lambda: (
            [*folder.glob("runs/*/events.jsonl")] and "began" in next(folder.glob("runs/*/events.jsonl")).read_text()
        )
    )
    (forked,) = server.children()
    return command, forked


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


@pytest.mark.parametrize("killed", ["command", "run", "server"])
def test_whoever_is_killed_leaves_nothing_of_a_run(server, environment, tmp_path, killed):
    command, forked = begun(server, environment, tmp_path)
    own = family(forked)
    assert len(own) > 2, "its template and its sampler"
    {"command": command, "run": forked, "server": server}[killed].send_signal(signal.SIGKILL)
    wait_for(lambda: all(map(gone, own)))
    assert command.wait(30) == -signal.SIGKILL
    command.stdout.close()
    assert gone(server) == (killed == "server")


def test_a_stop_reaches_the_run_and_its_status_the_command(server, environment, tmp_path):
    command, forked = begun(server, environment, tmp_path)
    command.send_signal(signal.SIGINT)
    printed, _ = command.communicate(timeout=60)
    assert command.returncode == 130 and b"stopped by SIGINT" in printed
    wait_for(lambda: gone(forked))


def test_a_command_with_other_variables_starts_cold_and_the_server_ends(server, environment):
    refused = run(REFUSED, environment | {"OMP_DYNAMIC": "true"})
    assert refused.returncode == 2
    assert "starts cold" in refused.stderr and "variable" in refused.stderr
    wait_for(lambda: gone(server))


def test_a_server_that_does_not_answer_hangs_nobody(server, environment):
    server.suspend()
    try:
        refused = run(REFUSED, environment)
    finally:
        server.resume()
    assert refused.returncode == 2
    assert f"process {server.pid}, does not answer" in refused.stderr


def test_a_socket_without_its_server_is_no_obstacle(server, environment):
    (path,) = Path(environment["XDG_RUNTIME_DIR"]).glob("labkit-*/*.sock")
    server.kill()
    wait_for(lambda: gone(server))
    assert path.is_socket()
    refused = run(REFUSED, environment)
    assert refused.returncode == 2 and "there is no warm server" in refused.stderr


def test_a_folder_that_others_may_enter_is_not_used(environment, tmp_path):
    with tempfile.TemporaryDirectory(prefix="lk-", dir="/tmp") as folder:
        own = Path(folder) / f"labkit-{os.geteuid()}"
        own.mkdir()
        own.chmod(0o755)
        refused = run(REFUSED, environment | {"XDG_RUNTIME_DIR": folder})
    assert refused.returncode == 2 and "only you can enter" in refused.stderr


def test_a_server_ends_when_its_socket_is_gone(server, environment):
    (path,) = Path(environment["XDG_RUNTIME_DIR"]).glob("labkit-*/*.sock")
    path.unlink()
    wait_for(lambda: gone(server))
