#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine, and mpirun over them, for tests and experiments.

    hosts.py [--hosts 2] [--ranks 2] [--rate 100mbit] [--delay 5ms] [--decoy] COMMAND…

runs COMMAND with so many ranks on each host; its exit status is mpirun's. A host is a process with a
network, host name and IPC namespace of its own (so that to Lockstep and to Open MPI it is another
machine), on the same files. Each has one link, eth0, to a switch that is a namespace too. `--rate`
throttles the links in both directions, `--delay` needs a kernel with netem, `--decoy` gives each
host an interface docker0 with the same address everywhere.

Needs ip, tc, nsenter and unshare, and root or a kernel that lets users make namespaces.
Nothing is left behind: a namespace has no name that could stay, and is held by a process that ends
what runs in it when its pipe to this one closes, even after kill -9.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

NAMESPACES = ["--net", "--uts", "--ipc"]
SUBNET = "10.77.0"
TOOLS = ("ip", "tc", "hostname", "nsenter", "unshare", "mpirun")
# A packet of 64 KiB, as the kernel hands them to a link, and some.
BURST = "96kb"

# As scripts/mpirun-local, except for the network.
OPTIONS = {
    "pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0",
    "mpi_yield_when_idle": "1",
}  # fmt: skip


def search_path():
    """Users' paths often lack the folders of ip and tc."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def call(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": search_path()}, **options)  # fmt: skip
    if done.returncode != 0:
        raise OSError(f"{shlex.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


# Holds the namespaces until the pipe from us ends, also because we were killed; then it ends what is
# left in them: daemons of Open MPI that lost their mpirun, say. $1: name, $2: folder to remove
HOLDER = """
hostname "$1" && ip link set lo up || exit
echo ready
cat >/dev/null
own=$(readlink /proc/self/ns/net)
for process in /proc/[0-9]*; do
  pid=${process#/proc/}
  [ "$pid" = $$ ] || [ "$(readlink "$process/ns/net")" != "$own" ] || kill -KILL "$pid"
done 2>/dev/null
[ -z "$2" ] || rm -rf "$2"
"""


class Namespace:
    """A process that does nothing but hold namespaces, and ends when we do."""

    def __init__(self, name, folder=""):
        self.name = name
        self.process = subprocess.Popen(["unshare", *NAMESPACES, "sh", "-c", HOLDER, "holder", name, str(folder)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True,
                                        env={**os.environ, "PATH": search_path()})  # fmt: skip
        if self.process.stdout.readline().strip() != "ready":
            error = self.process.communicate()[1].strip()
            raise OSError(f"host {name}: {error or 'could not be made'}")

    @property
    def pid(self):
        return self.process.pid

    def enter(self):
        """The words before a command that runs in here."""
        return ["nsenter", "--target", str(self.pid), *NAMESPACES]

    def call(self, *words):
        return call([*self.enter(), *map(str, words)])

    def release(self):
        self.process.stdin.close()

    def wait(self):
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Hosts:
    """`with Hosts(2, rate="100mbit") as hosts:`; the hosts are h0, h1 …"""

    def __init__(self, count, rate=None, delay=None, decoy=False):
        self.names = [f"h{index}" for index in range(count)]
        self.hosts = []
        self.switch = None
        self.session = None
        try:
            # Open MPI wants a short path without spaces.
            self.session = pathlib.Path(tempfile.mkdtemp(prefix="mpi.", dir="/tmp"))
            self.switch = Namespace("switch", self.session)
            self.switch.call("ip", "link", "add", "switch", "up", "type", "bridge")
            for name in self.names:
                self.hosts.append(Namespace(name))
            for index in range(count):
                self._plug_in(index, rate, delay, decoy)
            self._know_neighbours()
            self._write_agent()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        namespaces = [*self.hosts, *([self.switch] if self.switch else [])]
        for namespace in namespaces:
            namespace.release()
        for namespace in namespaces:
            namespace.wait()
        if self.session:
            shutil.rmtree(self.session, ignore_errors=True)  # where there was no switch

    @staticmethod
    def address(index):
        return f"{SUBNET}.{index + 1}"

    def _plug_in(self, index, rate, delay, decoy):
        host = self.hosts[index]
        if decoy:
            # First, so that programs that look at interfaces in order see it first.
            host.call("ip", "link", "add", "docker0", "up", "type", "bridge")
            host.call("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
        self.switch.call("ip", "link", "add", f"port{index}", "type", "veth",
                         "peer", "name", "eth0", "netns", host.pid)  # fmt: skip
        self.switch.call("ip", "link", "set", f"port{index}", "master", "switch", "up")
        host.call("ip", "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        host.call("ip", "link", "set", "eth0", "up")
        for namespace, link in ((host, "eth0"), (self.switch, f"port{index}")):
            place = "root"
            if rate:
                namespace.call("tc", "qdisc", "add", "dev", link, "root", "handle", "1:",
                               "tbf", "rate", rate, "burst", BURST, "latency", "100ms")  # fmt: skip
                place = "parent 1:"
            if delay:
                namespace.call("tc", "qdisc", "add", "dev", link, *place.split(), "netem", "delay", delay)

    def _know_neighbours(self):
        """As behind a router, which answers for its side of a network whatever lies beyond.

        Otherwise a host that is gone is an error (no route) after some seconds, and not silence.
        """
        cards = [host.call("ip", "-brief", "link", "show", "eth0").split()[2] for host in self.hosts]
        for host in self.hosts:
            for other, mac in enumerate(cards):
                if self.hosts[other] is not host:
                    host.call("ip", "neighbour", "replace", self.address(other), "lladdr", mac,
                              "dev", "eth0", "nud", "permanent")  # fmt: skip

    def _write_agent(self):
        """What Open MPI starts instead of ssh: agent HOST COMMAND…"""
        cases = "\n".join(f"  {host.name}) exec {shlex.join(host.enter())} sh -c \"$*\" ;;" for host in self.hosts)
        self.agent = self.session / "agent"
        self.agent.write_text(f'#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}\nesac\n'
                              'echo "agent: no host $host" >&2; exit 255\n')  # fmt: skip
        self.agent.chmod(0o755)

    def launcher(self, ranks_per_host, options=None):
        """The words before a command that all hosts run, started from the first host."""
        parameters = {**OPTIONS, "plm_rsh_agent": self.agent, "orte_tmpdir_base": self.session, **(options or {})}
        words = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
        where = ",".join(f"{name}:{ranks_per_host}" for name in self.names)
        return [*self.hosts[0].enter(), "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', '1')}", "UCX_LOG_LEVEL=error",
                "mpirun", "--oversubscribe", "--bind-to", "none", *words,
                "--host", where, "-n", str(ranks_per_host * len(self.names))]  # fmt: skip

    def sent_bytes(self, index):
        """What a host has sent over its link."""
        for line in self.hosts[index].call("cat", "/proc/self/net/dev").splitlines():
            name, _, fields = line.partition(":")
            if name.strip() == "eth0":
                return int(fields.split()[8])
        raise OSError(f"host {index} has no eth0")

    def run(self, ranks_per_host, command, **options):
        """Runs a command on all hosts to its end, as subprocess.run."""
        return subprocess.run([*self.launcher(ranks_per_host), *map(str, command)], check=False, **options)

    def cut(self, index, kind):
        """Takes a host from the network. kind: "down", its own link is down; "silent", what it sends
        and what is sent to it vanishes, and nobody is told."""
        if kind == "down":
            self.hosts[index].call("ip", "link", "set", "eth0", "down")
        elif kind == "silent":
            self.switch.call("ip", "link", "set", f"port{index}", "nomaster")
        else:
            raise ValueError(f"cut: {kind!r} is neither down nor silent")

    def mend(self, index):
        self.hosts[index].call("ip", "link", "set", "eth0", "up")
        self.switch.call("ip", "link", "set", f"port{index}", "master", "switch")
        self._know_neighbours()


def enter_user_namespace():
    """Whether hosts can be made here; a user who is not root starts anew as root of a user namespace."""
    if any(shutil.which(tool, path=search_path()) is None for tool in TOOLS):
        return False
    for way in ([], ["unshare", "--user", "--map-root-user"]):
        if os.environ.get("LOCKSTEP_TEST_USER_NAMESPACE") and way:
            continue
        probe = [*way, "unshare", *NAMESPACES, "ip", "link", "add", "probe", "type", "bridge"]
        if subprocess.run(probe, capture_output=True, check=False,
                          env={**os.environ, "PATH": search_path()}).returncode == 0:  # fmt: skip
            if way:
                environment = {**os.environ, "LOCKSTEP_TEST_USER_NAMESPACE": "1"}
                os.execvpe(way[0], [*way, sys.executable, *sys.argv], environment)
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="on each host")
    parser.add_argument("--rate", help="of each link and direction, as tc writes it: 100mbit")
    parser.add_argument("--delay", help="of each link and direction: 5ms")
    parser.add_argument("--decoy", action="store_true", help="docker0 with one address on all hosts")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("no command")
    if not enter_user_namespace():
        print(f"hosts.py: needs {', '.join(TOOLS)}, and root or unprivileged user namespaces", file=sys.stderr)
        return 77
    try:
        with Hosts(options.hosts, options.rate, options.delay, options.decoy) as hosts:
            return hosts.run(options.ranks, options.command).returncode
    except OSError as error:
        print(f"hosts.py: {error}", file=sys.stderr)
        return 79


if __name__ == "__main__":
    sys.exit(main())
