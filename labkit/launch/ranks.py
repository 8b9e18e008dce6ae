"""One run on several processes of this machine: starts them, and names the rank that failed first.

torch.distributed.run would start them, too, but it blames the neighbour of a rank that was killed or left, leaves its
ranks behind when it is killed itself, leaves a folder in the system's temporary folder, and waits for a hung rank as
long as gloo does, half an hour. Here the supervisor holds the ranks, and this process holds the store where they meet,
at a port that the system gave it. What a rank sees is the same as under torchrun.
"""

import contextlib
import os
import platform
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import UserError, hardware, json_data, process, runs, telemetry, tracking
from labkit.launch.engine import WORKER, End

SETTLE_S = 2.5
"""Seconds in which the other ranks may write their last words after one has failed"""
HOST = "127.0.0.1"
STOPPED = 130


def rank_commands(
    command: "tracking.ScriptCommand", count: int
) -> "list[tuple[tracking.ScriptCommand, dict[str, str]]]":
    """The command and the environment of each rank: its share of this process' cores as threads, and of its memory.

    Raises:
        UserError: this system or this process has no room for them.
    """
    cores = len(telemetry.own_affinity())
    if count < 1:
        raise UserError(f"--nproc is {count}: give a whole number of at least 1.")
    if sys.platform == "win32":
        raise UserError(
            "--nproc needs Linux or macOS, where labkit can end all processes of a run together: omit it, or use WSL."
        )
    if count > cores:
        raise UserError(
            f"--nproc {count}: this process may use {cores} core{'s' * (cores > 1)} on {platform.node()}, and each "
            f"process needs its own: use at most --nproc {cores}, or a larger budget."
        )
    budget = command.budget
    if budget is not None and budget.torch_name != "cpu":
        raise UserError(
            f"The budget {budget.name!r} is a part of one GPU, and several processes need a GPU each: omit --budget."
        )
    each = cores // count
    own = budget and replace(budget, cores=None, memory_bytes=budget.memory_bytes and budget.memory_bytes // count)
    common = dict.fromkeys(hardware.THREAD_VARIABLES, str(each)) | {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0",
        "MASTER_ADDR": HOST,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")
    if loopback and "GLOO_SOCKET_IFNAME" not in os.environ:
        common["GLOO_SOCKET_IFNAME"] = loopback  # the host's own name may lead nowhere
    bound = replace(command, budget=own, shared=budget)
    return [(bound, common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]


def several_machines(command: "tracking.ScriptCommand", count: int, nodes: int) -> str:
    """The line that starts a script on several machines, to be given on each of them.

    Raises:
        UserError: the processes cannot be divided among them.
    """
    if nodes < 1 or count % nodes:
        raise UserError(f"--nproc {count} --nodes {nodes}: give each machine the same number of processes.")
    if command.budget is not None:
        raise UserError("--budget binds processes of one machine: omit it, or let the cluster's scheduler bind them.")
    script = ["-m", command.module] if command.module else [str(command.script)]
    line = ["torchrun", "--nnodes", str(nodes), "--nproc-per-node", str(count // nodes), "--rdzv-backend", "c10d"]
    line += ["--rdzv-endpoint", f"{platform.node()}:29400", "--", *script, *command.arguments]
    if command.settings is not None and command.runs_dir != "runs":
        line += ["--runs-dir", command.runs_dir]
    return shlex.join(line)


class RankedRun:
    """One run on several processes: `run` goes to its end and leaves none of them."""

    def __init__(
        self,
        command: "tracking.ScriptCommand",
        count: int,
        *,
        stop: "tracking.StopRequest",
        on_event: "tracking.OnEvent" = lambda event: None,
        hang_s: float | None = None,
    ):
        """`on_event` is called with the events of rank 0; `hang_s` is the limit of `labkit.runs.HangWatch`."""
        self._ranks, self._stop, self._on_event = rank_commands(command, count), stop, on_event
        self._hang_s = runs.hang_s() if hang_s is None else hang_s or float("inf")
        self._pids: dict[int, int] = {}
        self._said: dict[int, dict[str, Any]] = {}
        """What ranks reported of their end, Ended or Failed, in the order in which they did"""
        self._statuses: dict[int, int | None] = {}
        """Exit statuses of the ranks that have ended by themselves, without Ended"""
        self._left = set(range(count))
        self._folder: str | None = None
        self._watch: runs.HangWatch | None = None
        self._hung = ""
        self._failed_at: float | None = None
        self._is_ending = False

    def run(self) -> End:
        """Start the ranks, and wait for their end; its reason names the rank that failed first, if one did."""
        with process.SupervisedJobs(shows_output=True) as jobs, contextlib.closing(socket.socket()) as listening:
            listening.bind((HOST, 0))
            listening.listen(len(self._ranks))
            port = listening.getsockname()[1]
            own = {"MASTER_PORT": str(port), runs.HANG_VARIABLE: f"{self._hang_s:g}"}
            for rank, (command, environment) in enumerate(self._ranks):
                content = json_data.to_json(command)
                jobs.start(str(rank), WORKER, content, "", environment | own)
            import torch.distributed as dist  # while the ranks import it, too

            store = dist.TCPStore(HOST, port, None, True, wait_for_workers=False, master_listen_fd=listening.detach())
            try:
                while self._left:
                    self._listen(jobs)
            except process.SupervisorDied as error:
                return End("failed", str(error), self._said.get(0, {}), 1)
            finally:
                del store
        return self._end()

    @property
    def _failed(self) -> dict[int, dict[str, Any]]:
        return {rank: said for rank, said in self._said.items() if said["kind"] == "Failed"}

    def _listen(self, jobs: "process.SupervisedJobs") -> None:
        event = jobs.next_event(0.1)
        while event is not None:
            self._hear(event)
            event = jobs.next_event(0)
        if self._stop and not self._is_ending:
            self._is_ending = True
            for rank in self._left:
                jobs.end(str(rank))
        if self._failed_at is None and (self._failed or any(self._statuses.values())):
            self._failed_at = time.monotonic()
        if self._watch is not None and not self._hung and (found := self._watch.look()) is not None:
            self._hung, self._failed_at = found[1], 0.0
        if self._failed_at is not None and time.monotonic() - self._failed_at > SETTLE_S:
            self._failed_at, self._is_ending = float("inf"), True
            for rank in self._left:
                jobs.kill(str(rank))

    def _hear(self, event: dict[str, Any]) -> None:
        rank = int(event["job"])
        if event["kind"] == "started":
            self._pids[rank] = event["pid"]
        elif event["kind"] == "ended":
            self._left.discard(rank)
            if not event["asked"] and self._said.get(rank, {}).get("kind") != "Ended":
                self._statuses[rank] = event["status"]
        elif (said := event["event"])["kind"] in ("Ended", "Failed"):
            self._said.setdefault(rank, said)
        elif rank == 0:
            if said["kind"] == "Started":
                self._folder = said["folder"]
                # the ranks look themselves, and first, but all of them may be stopped
                self._watch = runs.HangWatch(Path(said["folder"]), self._hang_s + 1)
            self._on_event(tracking.read_event(said))

    def _end(self) -> End:
        words = runs.read_ranks(self._folder) if self._folder else []
        (rank, reason), end = self._judged(words), End("stopped" if self._stop else "done", "", self._said.get(0, {}))
        if not reason or (self._stop and not self._hung):
            return replace(end, exit_status=STOPPED if self._stop else tracking.exit_status(end.answer))
        answer = end.answer
        if self._folder and all(word.ended in ("", "cut_off", "hung") for word in words if word.rank == 0):
            with contextlib.suppress(UserError, OSError):
                if (runs.read_run(self._folder).result or {}).get("reason") != reason:
                    even = ("interrupted", "running", "failed")
                    answer = runs.fail_killed(self._folder, reason, even=even) or answer
        said = self._failed.get(rank, {})
        status = said.get("exit_code") or (2 if said.get("refused") else 1)
        return End("failed", reason, {"kind": "Ended", **answer} if answer else {}, status)

    def _judged(self, words: "Sequence[runs.RankWord]") -> tuple[int, str]:
        """The rank that failed first, and a sentence on it; the sentence is empty if none failed."""
        if self._hung:
            return -1, self._hung
        count, failed = len(self._ranks), self._failed
        ended = {rank: said["reason"] for rank, said in failed.items() if not said.get("cut_off")}
        if len(ended) == count and len({*ended.values()}) == 1:
            return 0, ended[0]  # for example, the data is missing
        for rank, status in self._statuses.items():
            if status and rank not in failed:
                by_itself = f"the script ended its process with status {status}"
                ended[rank] = by_itself if status > 0 else process.how_ended({"status": status})
        found = runs.first_failure(words, ended)
        if ended and (found is None or found[0].ended in ("done", "stopped")):  # perhaps one failed outside its run
            rank, why = next(iter(ended.items()))
            return rank, f"rank {rank} of {count} on {platform.node()} (process {self._pids.get(rank)}): {why}"
        if found is not None:
            return found[0].rank, found[0].words if found[0].ended == "diverged" else found[1]
        return next(((rank, said["reason"]) for rank, said in failed.items()), (0, ""))
