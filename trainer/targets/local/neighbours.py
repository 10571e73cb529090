"""Other people on this machine: TensorFlow's ports on loopback are open to them (docs/security.md)."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable

from trainer import host

_FIRST, _NOBODY = 1000, 65534
"""The user ids of people begin at the first, where nobody has changed that (login.defs(5))."""
_CONTAINER = re.compile(r"docker|containerd|kubepods|libpod|crio|lxc|machine\.slice")
"""In the control group of a process that runs in a container: its loopback is another one."""


def other_user(processes: Iterable[tuple[int, int, str]] | None = None) -> tuple[str, int] | None:
    """Another person of whom a process runs outside containers, and that process; None if there is none, or it is not
    visible.

    Args:
        processes: as of host.owners, which are the default.
    """
    for user, process, groups in host.owners() if processes is None else processes:
        if _FIRST <= user < _NOBODY and user != os.getuid() and not _CONTAINER.search(groups):
            return _name(user), process
    return None


def warning(user: str, process: int) -> str:
    return (
        f"warning: user {user} uses this machine too (process {process}): any user of it can connect to TensorFlow's "
        "ports, which have no authentication, and so run code as you; docs/security.md has ways out"
    )


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
