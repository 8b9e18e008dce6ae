"""Cuts a worker off from the network before it loads anything. Linux only; elsewhere nothing is done, and what Python
itself does is still seen by the guard in `offline/`."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from pathlib import Path

# include/uapi/linux/sched.h, sockios.h and if.h of Linux
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def leave_network() -> bool:
    """Give this process and all it starts a network of their own, which has only the loopback device.

    A child tries it first: some systems allow the name space and then refuse its device, and there is no way back.

    Returns:
        Whether the system allowed it. Many containers and some distributions do not.
    """
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        refused = True
        try:
            _enter_own_network()
            refused = False
        finally:
            os._exit(refused)  # whatever happens: a child must not go on with its parent's work
    _, status = os.waitpid(child, 0)
    if status == 0:
        _enter_own_network()
    return status == 0


def _enter_own_network() -> None:
    """Raises OSError where the system refuses a part of it."""
    import fcntl

    libc, uid, gid = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET) != 0:  # allowed to root; another user needs a name space of users around it
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
