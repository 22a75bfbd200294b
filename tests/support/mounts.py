# SPDX-License-Identifier: Apache-2.0
"""File systems of a test's own: small ones, and one on a disk that fails."""
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys


def may_mount():
    """Whether this process may mount; runs again in a mount namespace of its own where it must."""
    if os.environ.get("LOCKSTEP_TEST_NAMESPACE"):
        return True
    for way in (["unshare", "-m"], ["unshare", "-U", "-r", "-m"]):
        if not shutil.which("unshare") or (way[1] == "-m" and os.geteuid() != 0):
            continue
        probe = [*way, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            environment = {**os.environ, "LOCKSTEP_TEST_NAMESPACE": "1"}
            os.execvpe(way[0], [*way, sys.executable, *sys.argv], environment)
    return False


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of `size` bytes; the function it gives changes the size."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield lambda other: subprocess.run(["mount", "-o", f"remount,size={other}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def call(*words):
    """Whether a tool did it; mkfs is not on every user's path."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    tool = shutil.which(words[0], path=path)
    return tool is not None and subprocess.run([tool, *map(str, words[1:])], capture_output=True,
                                               check=False).returncode == 0  # fmt: skip


@contextlib.contextmanager
def mortal_disk(folder, size):
    """A file system on a disk of its own; the function it gives breaks the disk: from then on every
    write to it is an I/O error. None instead of the function where there are no loop devices.

    The disk is a loop device over memory, which is sealed against writes.
    """
    memory = os.memfd_create("disk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    image = f"/proc/{os.getpid()}/fd/{memory}"
    folder.mkdir()
    try:
        os.truncate(memory, size)
        # Without a journal, whose end would make the file system read-only.
        if call("mkfs.ext4", "-q", "-F", "-O", "^has_journal", image) and call(
                "mount", "-o", "loop,errors=continue", image, folder):
            try:
                yield lambda: fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
            finally:
                subprocess.run(["umount", str(folder)], check=False)
        else:
            yield None
    finally:
        os.close(memory)
