"""A lock beside `out`, so that one run at a time writes there: across processes, and across machines that share it.

The lock is a file, `<out>.lock`, that appears whole or not at all (a hard link to what was written aside), names
its owner, and is touched while the owner lives. Nothing depends on locks of the operating system, which shared
folders often lack. The lock of a dead owner is taken over: on this machine its process is looked up, elsewhere the
lock has not been touched for `SILENT` seconds, by the clock of the file system.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from metastable.arguments import told
from metastable.errors import StorageError
from metastable.solve.storage import writing

HEARTBEAT = 15.0
"""Seconds between two touches of the lock: a small part of SILENT, so that some may fail."""
SILENT = 180.0
"""Seconds without a touch after which an owner on another machine counts as dead: NFS clients may show a file's
time up to 60 s late (acregmax), and a run may miss a few heartbeats under load."""
PAUSE = 0.01
"""Seconds until one looks again while another process takes over: it reads and removes a small file."""


@dataclass(frozen=True)
class Owner:
    """Who holds a lock: a process on a machine, since when, with which run."""

    machine: str
    """Host, boot and process namespace: where these are equal, a process number means the same process."""
    host: str
    process: int
    started: str
    """When that process began, in the machine's own clock, because process numbers are used again."""
    since: float
    run: str
    """Fingerprint of the run."""
    token: str
    """Different for every lock that was ever taken."""

    def alive(self, age: float) -> bool:
        """Whether the owner may still be writing; age: seconds since the lock was last touched."""
        if self.machine == _machine():
            started = _started(self.process)
            if started is None:
                return False
            if started and self.started:
                return started == self.started
        return age < SILENT


class Lock:
    """The right to write `out`, as a context; a `StorageError` names the owner if another run has it.

    A run that was killed leaves its lock behind, which the next one takes over. `check` ends a run whose lock was
    taken from it (its machine slept for minutes, somebody deleted the file) before it damages the other's work.
    """

    def __init__(self, out: str, run: str = "") -> None:
        self.out, self.location = out, f"{out}.lock"
        process = os.getpid()
        self.owner = Owner(
            _machine(), platform.node(), process, _started(process) or "", time.time(), run, uuid.uuid4().hex
        )
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        with writing(self.out):
            os.makedirs(os.path.dirname(self.location) or ".", exist_ok=True)
            while not self._created():
                self._take_over()
        self._thread = threading.Thread(target=self._touch, name="metastable lock", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._released.set()
        if os.getpid() == self.owner.process and self._mine():  # a forked child does not release for its parent
            try:
                os.remove(self.location)
            except OSError:
                return

    def check(self) -> None:
        """End the run if the lock is not its own any more."""
        if not self._mine():
            raise StorageError(
                f"{told(self.out)} was taken over by another run, because this one seemed dead; nothing was written"
            )

    def _mine(self) -> bool:
        found = _owner(self.location)
        return found is not None and found.token == self.owner.token

    def _created(self) -> bool:
        """Make the lock, whole, unless there is one."""
        aside = f"{self.location}.{self.owner.token[:8]}"
        content = json.dumps(asdict(self.owner))
        try:
            with open(aside, "w") as file:
                file.write(content)
            try:
                os.link(aside, self.location)
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links: whole a moment later
                return self._created_exclusively(content)
            return True
        finally:
            if os.path.exists(aside):
                os.remove(aside)

    def _created_exclusively(self, content: str) -> bool:
        try:
            with open(self.location, "x") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def _take_over(self) -> None:
        """Remove the lock of a dead run; refuse if its owner lives."""
        self._refuse_living()
        # Of several that see a dead owner one at a time looks again and removes its lock, so that nobody removes
        # the lock that another one has just made in its place.
        guard = f"{self.location}.takeover"
        try:
            os.close(os.open(guard, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if (_age(guard) or 0.0) > SILENT:  # left by one that was killed in the middle
                os.remove(guard)
            time.sleep(PAUSE)
            return
        try:
            self._refuse_living()
            if os.path.exists(self.location):
                os.remove(self.location)
        finally:
            os.remove(guard)

    def _refuse_living(self) -> None:
        found, age = _owner(self.location), _age(self.location)
        if age is not None and (found.alive(age) if found is not None else age < SILENT):
            raise StorageError(_in_use(self.out, found, age))

    def _touch(self) -> None:
        while not self._released.wait(HEARTBEAT):
            try:
                os.utime(self.location)
            except OSError:
                continue


def _in_use(out: str, owner: Owner | None, age: float) -> str:
    who = "another run"
    if owner is not None:
        since = time.strftime("%H:%M:%S", time.gmtime(owner.since))
        host = owner.host if len(owner.host) <= 30 else f"{owner.host[:27]}..."
        who = f"process {owner.process} on {host} since {since} UTC"
    return (
        f"{told(out)} is being written by {who} (alive {max(0, round(age))} s ago); wait, choose another out, "
        "or delete the .lock beside it if it is dead"
    )


def _owner(location: str) -> Owner | None:
    """The owner that a lock names, if it can be read."""
    try:
        with open(location) as file:
            return Owner(**json.loads(file.read()))
    except (OSError, ValueError, TypeError):
        return None


def _age(location: str) -> float | None:
    """Seconds since a lock was touched, by the clock that dates files there; None if there is no lock."""
    probe = f"{location}.{uuid.uuid4().hex[:8]}.now"
    try:
        touched = os.stat(location).st_mtime
    except OSError:
        return None
    try:
        with open(probe, "w"):
            now = os.stat(probe).st_mtime
        os.remove(probe)
    except OSError:
        now = time.time()
    return now - touched


def _machine() -> str:
    """What makes process numbers comparable: the host, its boot, and the namespace of processes (a container)."""
    parts = [platform.node()]
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        return parts[0]
    return " ".join(parts)


def _started(process: int) -> str | None:
    """When a process of this machine began, in ticks since its boot; "" if nobody can tell, None if it is dead."""
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:  # no such process, no /proc, or one that hides the processes of others
        pass
    if os.name != "posix":
        return ""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""
