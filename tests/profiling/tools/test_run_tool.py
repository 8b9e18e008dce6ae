"""Running a profiler's command: what it prints, what it refuses, and that nothing of it stays."""

import os
import signal
import sys
import threading
import time

import psutil
import pytest
from fake_tools import fake_tool

from labkit.errors import UserError
from labkit.profiling.tools import run_tool as module
from labkit.profiling.tools.run_tool import Refusal, run_tool

LEAVES_ONE_BEHIND = 'sleep 300 &\necho $! > "$0.pid"\n'


def process_of(tool):
    """The process that a fake tool left behind."""
    path = tool.with_name(f"{tool.name}.pid")
    until = time.monotonic() + 20
    while not (path.is_file() and path.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.01)
    return int(path.read_text())


def is_gone(pid):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_what_a_tool_prints_is_returned_and_shown_as_asked(tmp_path, monkeypatch, capsys):
    fake_tool("nsys", "echo table; echo progress >&2", tmp_path, monkeypatch)
    assert run_tool(["nsys"], show=False) == "table\n"
    assert capsys.readouterr() == ("", "")
    run_tool(["nsys"])
    assert capsys.readouterr() == ("table\n", "progress\n")


def test_much_output_on_both_streams_is_heard_to_its_end(tmp_path, monkeypatch):
    body = f"exec {sys.executable} -c \"import sys; sys.stderr.write('e' * 10**6); sys.stdout.write('ö' * 10**6)\""
    fake_tool("nsys", body, tmp_path, monkeypatch)
    assert run_tool(["nsys"], show=False) == "ö" * 10**6


def test_a_tool_that_is_not_there_is_told_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match=r"py-spy is not on PATH.*pip install py-spy"):
        run_tool(["py-spy"])


def test_a_failure_names_the_tool_its_status_and_its_last_line(tmp_path, monkeypatch):
    fake_tool(
        "perf", "echo hello; echo first >&2; echo 'event syntax error: nosuch' >&2; exit 129", tmp_path, monkeypatch
    )
    with pytest.raises(UserError, match=r"perf ended with status 129: event syntax error: nosuch.*perf stat 'a b'"):
        run_tool(["perf", "stat", "a b"], show=False)


def test_the_line_with_the_error_counts_for_more_than_the_backtrace_after_it(tmp_path, monkeypatch):
    # as py-spy 0.4.3 ends
    body = "printf 'Error: no such thing\\n\\n   0: anyhow::error::msg\\n   6: main\\n' >&2; exit 1"
    fake_tool("py-spy", body, tmp_path, monkeypatch)
    with pytest.raises(UserError, match=r"py-spy ended with status 1: Error: no such thing\. "):
        run_tool(["py-spy"], show=False)


def test_the_end_by_a_signal_is_named(tmp_path, monkeypatch):
    fake_tool("nsys", "kill -SEGV $$", tmp_path, monkeypatch)
    with pytest.raises(UserError, match="nsys was ended by SIGSEGV"):
        run_tool(["nsys"], show=False)


def test_a_refusal_ends_the_tool_at_once(tmp_path, monkeypatch):
    tool = fake_tool("ncu", f"echo '==ERROR== FORBIDDEN - no' >&2\n{LEAVES_ONE_BEHIND}wait", tmp_path, monkeypatch)
    with pytest.raises(UserError, match="ask the administrator"):
        run_tool(["ncu"], refusals=[Refusal("FORBIDDEN", "ask the administrator")], show=False)
    assert is_gone(process_of(tool))


def test_a_refusal_in_the_log_counts_whatever_the_status(tmp_path, monkeypatch):
    log = tmp_path / "log"
    for status in (0, 1):
        fake_tool("ncu", f"echo FORBIDDEN > {log}; exit {status}", tmp_path, monkeypatch)
        with pytest.raises(UserError, match="ask the administrator"):
            run_tool(["ncu"], refusals=[Refusal("FORBIDDEN", "ask the administrator")], log=log, show=False)


def test_what_the_program_prints_on_its_standard_output_is_no_refusal(tmp_path, monkeypatch):
    fake_tool("ncu", "echo FORBIDDEN", tmp_path, monkeypatch)
    assert run_tool(["ncu"], refusals=[Refusal("FORBIDDEN", "")], show=False) == "FORBIDDEN\n"


def test_a_tool_without_an_end_is_stopped_with_all_it_started(tmp_path, monkeypatch):
    tool = fake_tool("nsys", f"{LEAVES_ONE_BEHIND}wait", tmp_path, monkeypatch)
    with pytest.raises(UserError, match=r"nsys did not end within 0.5 s and was stopped"):
        run_tool(["nsys"], timeout_s=0.5, show=False)
    assert is_gone(process_of(tool))


@pytest.mark.parametrize("leaves_its_group", [False, True])
def test_ctrl_c_leaves_nothing_running(tmp_path, monkeypatch, leaves_its_group):
    away = f"{sys.executable} -c 'import os, time; os.setsid(); time.sleep(300)' &\necho $! > \"$0.pid\"\n"
    body = away if leaves_its_group else LEAVES_ONE_BEHIND
    tool = fake_tool("nsys", f"{body}wait", tmp_path, monkeypatch)

    def interrupt():
        process_of(tool)
        os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=interrupt)
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        run_tool(["nsys"], show=False)
    killer.join()
    assert is_gone(process_of(tool))


def test_a_tool_that_ignores_being_told_to_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    tool = fake_tool("nsys", f"trap '' TERM\n{LEAVES_ONE_BEHIND}while :; do sleep 0.1; done", tmp_path, monkeypatch)
    with pytest.raises(UserError, match="did not end"):
        run_tool(["nsys"], timeout_s=0.5, show=False)
    assert is_gone(process_of(tool))


def test_what_a_tool_leaves_behind_at_its_own_end_is_ended_too(tmp_path, monkeypatch):
    tool = fake_tool("nsys", LEAVES_ONE_BEHIND, tmp_path, monkeypatch)
    run_tool(["nsys"], show=False)
    assert is_gone(process_of(tool))


def test_numbers_are_written_without_the_users_language(tmp_path, monkeypatch):
    fake_tool("nsys", 'echo "$LC_ALL|$LANG|$LC_NUMERIC|$OWN"', tmp_path, monkeypatch)
    env = os.environ | {"LC_ALL": "de_DE.UTF-8", "LANG": "fr_FR.UTF-8", "OWN": "1"}
    assert run_tool(["nsys"], env=env, show=False) == "|de_DE.UTF-8|C|1\n"
