"""Runs a program as the unit would confine it: the files it may write, the /proc it sees, its system calls.

    python -m tests.deploy.confined <unit file> <writable directory> <program> <argument>...

It needs root, systemd-analyze and libseccomp; without them nothing is run, and the exit code is 77.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

CANNOT = 77
_CLONE_NEWNS = 0x20000
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM


class Unit:
    """The [Service] section. A setting may be there more than once."""

    def __init__(self, path: Path) -> None:
        self.settings: dict[str, list[str]] = {}
        section = ""
        for line in path.read_text().splitlines():
            if line.startswith("["):
                section = line
            elif section == "[Service]" and line and not line.startswith("#"):
                name, _, value = line.partition("=")
                self.settings.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> str:
        (value,) = self.settings[name]
        return value

    def get(self, name: str) -> str | None:
        return self[name] if name in self.settings else None


def allowed_calls(unit: Unit) -> set[str]:
    """What SystemCallFilter= comes down to, by systemd's own lists."""
    allowed: set[str] = set()
    for line in unit.settings["SystemCallFilter"]:
        called = {call for name in line.lstrip("~").split() for call in _expanded(name)}
        allowed = allowed - called if line.startswith("~") else allowed | called
    return allowed


def _expanded(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True)
    inner = [line.strip() for line in listed.stdout.splitlines()[1:]]
    return {call for each in inner if each and not each.startswith("#") for call in _expanded(each)}


def confine_files(unit: Unit, writable: str) -> None:
    """Raises OSError where we may not."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _mount("--make-rprivate", "/")
    if unit.get("ProtectSystem") == "strict":
        _mount("--bind", writable, writable)
        _mount("-o", "remount,bind,ro", "/")
    options = []
    if unit.get("ProcSubset") == "pid":
        options.append("subset=pid")
    if unit.get("ProtectProc"):
        options.append(f"hidepid={unit['ProtectProc']}")
    _mount("-t", "proc", "-o", ",".join(options) or "defaults", "proc", "/proc")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(errno.EPERM, done.stderr.strip())


def confine_calls(calls: set[str]) -> None:
    """Everything else fails with EPERM, in this process and all that come from it."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_REFUSE)))
    for call in calls:
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, 0)
    if seccomp.seccomp_load(context) != 0:
        raise OSError(errno.EPERM, "seccomp_load")


def main(unit_file: str, writable: str, *command: str) -> int:
    """Returns only if the program could not be confined."""
    unit = Unit(Path(unit_file))
    if shutil.which("systemd-analyze") is None:
        return CANNOT
    calls = allowed_calls(unit)
    try:
        confine_files(unit, writable)
        confine_calls(calls)
    except OSError as error:
        print(f"cannot confine: {error}", file=sys.stderr)
    else:
        os.execv(command[0], command)
    return CANNOT


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
