"""Processes that a template forks: what they are, what they share, and what ends them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import wait_for

from labkit.process import Child, template

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely, and has pidfds")

PROBE = """
import json, os, random, sys, numpy, torch, labkit.process as process
if sys.argv[1:] == ["waits"]:
    print(os.getpid(), flush=True)
    sys.stdin.read()
found = {"arguments": sys.argv[1:], "folder": os.getcwd(), "of_its_own": os.getsid(0) == os.getpid(),
    "environment": {name: value for name, value in os.environ.items() if name.startswith("PROBE")},
    "random": [random.random(), numpy.random.random(), torch.rand(()).item()], "main": __name__,
    "path": sys.path[0], "is_warm": process.is_warm(), "parent": process.starter_pid(), "read": sys.stdin.read()}
print(json.dumps(found))
sys.exit(7)
"""


@pytest.fixture(scope="module")
def made():
    """A template of this process, while that of the whole test run waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(template.VARIABLE, "")
        patch.setattr(template, "_own", None)
        yield template.start_template
        template.start_template().close()


@pytest.fixture
def probe(tmp_path, monkeypatch, made):
    """Forks the probe, or starts it cold, with `said` on its input; what it found, and its status."""
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, warm: bool = True, said: str = "") -> tuple[dict, int]:
        command = [sys.executable, "-m", "probe", *arguments]
        if not warm:
            done = subprocess.run(command, input=said, capture_output=True, text=True)
            return json.loads(done.stdout), done.returncode
        forked, ours, output = fork(made(), *arguments)
        with ours, output:
            ours.write(said)
            ours.close()
            return json.loads(output.read()), forked.wait(60)

    return run


def fork(made, *arguments: str, **environment: str):
    """The probe as a forked process, the end of its input, and that of its output."""
    its_in, ours_in = os.pipe()
    ours_out, its_out = os.pipe()
    forked = made.fork((its_in, its_out, 2), module="probe", arguments=arguments, environment=os.environ | environment)
    os.close(its_in)
    os.close(its_out)
    return forked, os.fdopen(ours_in, "w"), os.fdopen(ours_out)


def test_a_forked_process_is_what_a_cold_one_would_be(probe, monkeypatch):
    monkeypatch.setenv("PROBE_SAYS", "now")
    warm, status = probe("--flag", "value", said="a line")
    cold, as_cold = probe("--flag", "value", said="a line", warm=False)
    own = {"random", "is_warm", "of_its_own"}
    assert {name: warm[name] for name in warm.keys() - own} == {name: cold[name] for name in cold.keys() - own}
    assert (status, as_cold) == (7, 7)
    assert warm["is_warm"] and not cold["is_warm"] and warm["of_its_own"]
    assert warm["parent"] == os.getpid(), "not the template"


def test_no_two_forked_processes_draw_the_same_numbers(probe):
    (first, _), (second, _) = probe(), probe()
    assert not {*first["random"]} & {*second["random"]}


def test_before_the_fork_a_template_has_no_thread_that_could_compute(probe, made):
    probe()
    tasks = Path(f"/proc/{made().pid}/task").iterdir()
    own, *others = sorted((task / "comm").read_text().strip() for task in tasks)[::-1]
    assert own.startswith("python")
    assert others in ([], ["jemalloc_bg_thd"]), "pyarrow's, which jemalloc itself starts again after a fork"


def test_what_a_library_reads_as_it_is_loaded_cannot_change(made):
    streams = 0, 1, 2
    for name in ("OMP_WAIT_POLICY", "LD_PRELOAD", "NUMBA_CACHE_DIR"):
        assert made().fork(streams, module="probe", environment=os.environ | {name: "other"}) is None
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    assert made().fork(streams, module="no_such_module", environment=environment).wait(60) == 1


def test_a_process_that_started_warm_can_start_again_cold(tmp_path, monkeypatch, made):
    (tmp_path / "again.py").write_text(
        "import labkit.process as process\nparent = process.Parent()\nwas = process.is_warm()\nprocess.go_cold()\n"
        "parent.tell('now', warm=was, content=parent.content)\nparent.listen()\nimport time; time.sleep(600)\n"
    )
    monkeypatch.chdir(tmp_path)
    made()
    content = {"what": "to do" * 2**15}  # longer than a variable of the environment may be
    child = Child("again", content, grace_s=0)
    monkeypatch.setattr(child, "_warm", True)  # which only labkit's own programs are
    with child:
        pid = child.pid
        assert isinstance(child._process, template.ForkedProcess)
        assert child.next_message(60) == {"kind": "now", "warm": False, "content": content}
        assert psutil.Process(pid).cmdline()[1:] == ["-m", "again"]


@pytest.mark.parametrize("killed", ["template", "requester's connection"])
def test_what_is_to_die_with_its_requester_does(killed, probe):
    made = template.start_template()
    forked, ours, output = fork(made, "waits", LABKIT_SUPERVISOR=str(os.getpid()))
    with ours, output:
        assert int(output.readline()) == forked.pid
        if killed == "template":
            psutil.Process(made.pid).kill()
        else:
            forked._connection.close()
        wait_for(lambda: not psutil.pid_exists(forked.pid) or psutil.Process(forked.pid).status() == "zombie")
    if killed == "template":
        assert forked.wait(10) == -signal.SIGKILL
        made.close()  # the next test gets another one


def test_a_template_that_is_idle_ends_and_one_that_is_out_of_date_is_replaced(made, monkeypatch):
    made().close()
    idle = template.start_template(idle_s=0.5)
    assert idle.await_ready() and template.own_template() is idle
    wait_for(lambda: idle.is_over)
    assert template.own_template() is None and (another := made()) is not idle and made() is another
    assert not another.await_ready(lambda: True), "a stop ends the wait"
    assert template.current_template(60) is another
    monkeypatch.setattr(template, "identity", lambda: "of a changed checkout")
    assert made() is another, "jobs may run that would die with it"
    assert template.current_template(60) is not another and another.is_over
