"""A real Slurm of one or more nodes on this machine, for as long as a `with` block lasts; for root.

Nothing of the system's own Slurm is used: folder, ports and configuration are the block's, and nothing is left of it.
"""

import contextlib
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

import psutil
from processes import wait_for

DAEMONS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
CONFIGURATION = """\
ClusterName=labkit
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=10
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,defer_batch=0,bf_interval=1
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""
# a requeued job waits for cred_expire, which is 120 s otherwise; a grace time of preemption is looked at every 15 s


def why_not() -> str:
    """Why there can be no cluster here; empty where there can."""
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        return f"needs Slurm, and {missing[0]} is not here: apt-get install slurmctld slurmd slurm-client"
    return "" if os.geteuid() == 0 else "only root can start Slurm's daemons"


def slurm(*command: str) -> str:
    """What one of Slurm's commands prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def slurm_cluster(folder: Path, *, nodes: int = 1, cpus: int = 2) -> Generator[None]:
    """Run Slurm with that many nodes of so many CPUs each, and find it by SLURM_CONF during the block."""
    (folder / "state").mkdir(parents=True)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes + 1)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    host, text = platform.node(), CONFIGURATION.format(host=platform.node(), port=ports[0], folder=folder)
    for number, port in enumerate(ports[1:], 1):
        text += f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=2000\n"
    (folder / "slurm.conf").write_text(text)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    commands = [["slurmctld", "-D", "-i"], *(["slurmd", "-D", "-N", f"n{number}"] for number in range(1, nodes + 1))]
    daemons = [subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for each in commands]
    try:
        wait_for(lambda: slurm("sinfo", "-h", "-N", "-p", "low", "-o", "%T").split() == ["idle"] * nodes)
        yield
    finally:
        subprocess.run(["scancel", "--full", "--user=root"], check=False)  # first, or its steps would outlive slurmd
        wait_for(lambda: not slurm("squeue", "-h") and not steps())
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)
        del os.environ["SLURM_CONF"]


def steps() -> list[psutil.Process]:
    """The processes of Slurm that run jobs; zombies are those of a machine without an init."""
    found = (each for each in psutil.process_iter(["name", "status"]) if each.info["name"] == "slurmstepd")
    return [each for each in found if each.info["status"] != psutil.STATUS_ZOMBIE]
