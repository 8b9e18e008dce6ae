"""Loaded by every Python process of a notebook that `labkit course run` executes: no connection leaves this machine.

Python imports a module of this name at its start, from the first place on its path that has one.
"""

import os
import socket
import sys

OWN = {"", "localhost", "localhost.localdomain", "ip6-localhost", "::1", "::", "0.0.0.0", socket.gethostname()}
LOOKED_UP = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
CONNECTED = ("socket.connect", "socket.sendto", "socket.sendmsg")


def _refuse_outside(event, args):
    if event in CONNECTED and isinstance(args[1], tuple):  # others are Unix sockets, and messages on connected ones
        host = args[1][0]
    elif event in LOOKED_UP and args[0] is not None:
        host = args[0].decode(errors="replace") if isinstance(args[0], bytes) else args[0]
    else:
        return
    if host not in OWN and not host.startswith("127."):
        # in a file of its own: code that catches the error does not hide the attempt
        with open(os.environ["LABKIT_NETWORK_REPORT"], "a", encoding="utf-8") as report:  # noqa: PTH123
            report.write(f"{host}\n")
        raise OSError(f"a notebook of the course may not connect to {host}: it has to run offline")


sys.addaudithook(_refuse_outside)
