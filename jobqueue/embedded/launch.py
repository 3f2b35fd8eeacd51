"""A small first program of every child: ties its life to its parent's, drops root, and becomes the real one.

Run as ``python -I -S launch.py PARENT_PID DEATH_SIGNAL IDENTITY PROGRAM ARGUMENT…``. It is a program and no
``preexec_fn``, because that is not safe in a process with threads, and it must set the death signal after the
change of user, which clears it. Identities:

``same``       the caller's user.
``namespace``  a user namespace in which the caller appears as uid 65534: PostgreSQL refuses to run as root,
               and outside the namespace the files keep the caller as their owner.
``drop``       uid 65534, where namespaces are forbidden (most containers). It keeps CAP_DAC_OVERRIDE if it
               can, so that it reaches a data folder or a program below folders that are root's alone.
``probe``      only try whether ``namespace`` works; exit code 0 or 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

NOBODY = 65534
CLONE_NEWUSER = 0x10000000  # linux/sched.h
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 8, 47, 2  # linux/prctl.h
CAPABILITY_VERSION_3, CAP_DAC_OVERRIDE = 0x20080522, 1  # linux/capability.h


def main(arguments: list[str]) -> None:
    """Carry out the command line above."""
    parent, death_signal, identity = int(arguments[0]), int(arguments[1]), arguments[2]
    os.umask(0o077)
    if identity in {"namespace", "probe"}:
        enter_namespace()
    elif identity == "drop":
        drop_root()
    if identity == "probe":
        return
    if death_signal and sys.platform == "linux":
        _libc().prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        # The parent may have died before the line above.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(arguments[3], arguments[3:])  # noqa: S606  the caller names the program


def enter_namespace() -> None:
    """Move into a user namespace where this user is 65534.

    Raises:
        OSError: the kernel or the container forbids it.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc = _libc()
    if not hasattr(libc, "unshare") or libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "no user namespaces")
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {gid} 1", encoding="ascii")


def drop_root() -> None:
    """Become uid 65534 for good, with the one capability to pass folders that only root may enter."""
    libc = _libc()
    on_linux = sys.platform == "linux"
    if on_linux:
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    if on_linux:
        mask = 1 << CAP_DAC_OVERRIDE
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)  # effective, permitted, inheritable
        # Refused without that capability: the folders' permissions then decide.
        with contextlib.suppress(AttributeError):
            libc.capset(header, sets)
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[4] if len(sys.argv) > 4 else 'probe'}: {error}")
