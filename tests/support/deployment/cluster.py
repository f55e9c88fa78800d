"""A real Kubernetes of one node: etcd, API server, controllers, kubelet, containerd, name server,
and kube-router, which enforces network policies.

    with Cluster(sealed_folder()) as cluster:      # inside of `python -m support.machine.sealed`
        cluster.load_image(archive)
        cluster.kubectl("get", "nodes")

Nothing is simulated but for what stands in deploy/evidence/README.md. It has fixed addresses,
so that it needs a network namespace to itself; that is also how it ends.
"""

import json
import secrets
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from support.deployment.kubernetes_programs import kubernetes_programs, programs_beside
from support.machine.processes import run_program
from support.waiting import eventually

Manifest = dict[str, Any]

NODE = "node-0"
BRIDGE = "pods0"
ADDRESS = "10.244.7.1"
PODS = "10.244.7.0/24"
SERVICES = "10.96.0.0/16"
DOMAIN = "cluster.local"
STORAGE_CLASS = "local"
PAUSE_IMAGE = "localhost/pause:1"

ETCD_URL = "http://127.0.0.1:2379"
KUBELET_STARTS_WITHIN_S = 60.0
KUBELET_HEALTH = "http://127.0.0.1:10248/healthz"


class KubectlError(RuntimeError):
    """`kubectl` ended with an error; the text is its output."""


class Cluster:
    """One node; a context manager that starts it."""

    def __init__(self, folder: Path) -> None:
        """Prepare it.

        Args:
            folder: `sealed_folder`, for everything that it keeps, volumes and images as well.
        """
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.socket = folder / "containerd.sock"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._programs = kubernetes_programs()

    # ------------------------------------------------------------------ its life

    def start(self) -> Self:
        """Start everything; returns when the node is ready."""
        self._make_network()
        self._write_files()
        folder = self.folder
        self._start(
            "etcd", "etcd", "--data-dir", f"{folder}/etcd", "--unsafe-no-fsync",
            "--listen-client-urls", ETCD_URL, "--advertise-client-urls", ETCD_URL,
        )  # fmt: skip
        self._start(
            "apiserver", self._program("kube-apiserver"),
            f"--etcd-servers={ETCD_URL}", "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}", "--secure-port=6443", f"--cert-dir={folder}/certs",
            f"--service-account-key-file={folder}/accounts.key",
            f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=RBAC",
            f"--token-auth-file={folder}/tokens.csv",
            "--kubelet-preferred-address-types=InternalIP", "--shutdown-delay-duration=0",
        )  # fmt: skip
        self._start("containerd", "containerd", "--config", f"{folder}/containerd.toml")
        eventually(self._is_answering, within_s=120, every_s=0.2, what="the API server is ready")
        self._start(
            "controllers", self._program("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--service-account-private-key-file={folder}/accounts.key",
            f"--root-ca-file={folder}/certs/apiserver.crt", f"--cert-dir={folder}/controllers",
        )  # fmt: skip
        self._start(
            "scheduler", self._program("kube-scheduler"), f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false", "--bind-address=127.0.0.1", f"--cert-dir={folder}/scheduler",
        )  # fmt: skip
        self._start("names", self._program("coredns"), "-conf", f"{folder}/Corefile")
        self._start(
            "proxy", self._program("kube-proxy"), f"--kubeconfig={self.kubeconfig}",
            "--proxy-mode=nftables", f"--cluster-cidr={PODS}", f"--hostname-override={NODE}",
            "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
            # Why: limits of the machine, which a namespace may not set.
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )  # fmt: skip
        self._start(
            "kubelet", self._program("kubelet"), f"--config={folder}/kubelet.json",
            f"--kubeconfig={self.kubeconfig}", f"--root-dir={folder}/kubelet",
            f"--cert-dir={folder}/kubelet-certs", f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
        )  # fmt: skip
        self.wait_ready()
        self.start_beside(
            "kube-router", f"--kubeconfig={self.kubeconfig}", f"--hostname-override={NODE}",
            "--run-router=false", "--run-service-proxy=false", "--enable-cni=false",
            f"--service-cluster-ip-range={SERVICES}", "--health-port=0",
        )  # fmt: skip
        self.apply(STORAGE)
        return self

    def start_beside(self, name: str, *options: str) -> None:
        """Start one of `programs_beside`, which ends with the cluster."""
        self._start(name, str(programs_beside() / name), *options)

    def wait_ready(self) -> None:
        """Wait until the node takes pods."""
        within = f"--timeout={KUBELET_STARTS_WITHIN_S:g}s"
        self.kubectl("wait", "--for=create", f"node/{NODE}", within)
        self.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", within)
        self.kubectl("wait", "--for=create", "serviceaccount/default", within)

    def kill(self, name: str) -> None:
        """End one of its processes with SIGKILL.

        Args:
            name: that of its log: kubelet, containerd, apiserver, controllers, ...
        """
        self._processes[name].kill()
        self._processes[name].wait()

    def restart(self, name: str) -> None:
        """End one of its processes with SIGKILL, if it runs, and start it again."""
        self.kill(name)
        self._start(name, *self._commands[name])
        if name == "kubelet":
            eventually(
                self._has_kubelet,
                within_s=KUBELET_STARTS_WITHIN_S,
                every_s=0.5,
                what="the kubelet is back",
            )

    def stop(self) -> None:
        """End its processes, the last one first; pods are left to the namespace that ends."""
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            print(self.log_tails())
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log_tails(self, lines: int = 15) -> str:
        """Return the end of each process' log."""
        tails = (
            (path.name, path.read_text(errors="replace").splitlines()[-lines:])
            for path in sorted(self.folder.glob("*.log"))
        )
        return "\n".join("\n  ".join([name, *tail]) for name, tail in tails)

    # ------------------------------------------------------------------ using it

    def kubectl(self, *arguments: str, given: str | None = None, timeout_s: float = 300) -> str:
        """Return the output of `kubectl`.

        Args:
            given: its standard input.

        Raises:
            KubectlError: it ends with an error.
        """
        done = run_program(
            [self._program("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=given,
            timeout=timeout_s,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return the output of `kubectl get`, as JSON."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def apply(self, manifests: Sequence[Manifest], namespace: str = "default") -> None:
        """Make or change objects."""
        everything = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", f"--namespace={namespace}", "-f", "-", given=json.dumps(everything))

    def load_image(self, archive: Path) -> None:
        """Give the node an image out of an archive, as a registry would."""
        self._ctr("images", "import", str(archive))

    def make_volumes(self, name: str, count: int) -> None:
        """Offer volumes of the class `STORAGE_CLASS`, as a provisioner would, each a folder."""
        folders = [self.folder / "volumes" / f"{name}-{number}" for number in range(count)]
        for folder in folders:
            folder.mkdir(parents=True)
        self.apply([_volume(folder) for folder in folders])

    def offer(self, folder: Path, storage_class: str) -> None:
        """Offer one folder as a volume, the only one of a storage class of its own."""
        own = {**STORAGE[0], "metadata": {"name": storage_class}}
        self.apply([own, _volume(folder, storage_class)])

    def container_pid(self, namespace: str, pod: str, container: str) -> int:
        """Return the id of the first process of a container."""
        statuses = self.get("pod", pod, f"--namespace={namespace}")["status"]
        every = [*statuses.get("initContainerStatuses", []), *statuses["containerStatuses"]]
        [name] = [one["containerID"] for one in every if one["name"] == container]
        lines = self._ctr("tasks", "list").splitlines()
        [pid] = [
            line.split()[1] for line in lines if line.startswith(name.removeprefix("containerd://"))
        ]
        return int(pid)

    # ------------------------------------------------------------------

    def _ctr(self, *arguments: str) -> str:
        command = ["ctr", f"--address={self.socket}", "--namespace=k8s.io", *arguments]
        return run_program(command, code=0).stdout

    def _program(self, name: str) -> str:
        return str(self._programs / name)

    def _start(self, name: str, *command: str) -> None:
        self._commands[name] = list(command)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Why: an interrupt at the terminal is for the program that owns the cluster.
                start_new_session=True,
            )

    def _has_kubelet(self) -> bool:
        """Say whether it is well; where it has ended, start it again, as a machine's init does.

        It ends itself when it finds a containerd that has only just begun.
        """
        if self._processes["kubelet"].poll() is not None:
            self._start("kubelet", *self._commands["kubelet"])
            return False
        try:
            with urllib.request.urlopen(KUBELET_HEALTH, timeout=5) as said:
                return bytes(said.read()) == b"ok"
        except OSError:
            return False

    def _is_answering(self) -> bool:
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        if ended:
            raise RuntimeError(f"{ended} ended:\n{self.log_tails()}")
        try:
            return self.kubectl("get", "--raw", "/readyz") == "ok"
        except KubectlError:
            return False

    def _make_network(self) -> None:
        # Why a bridge beforehand: the node's address must be there, and not be loopback's.
        for command in (
            f"link add {BRIDGE} type bridge",
            f"address add {ADDRESS}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"route add default dev {BRIDGE}",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
        # Why: else what pods say to each other passes by the network policies.
        filtered = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
        filtered.write_text("1", encoding="ascii")

    def _write_files(self) -> None:
        key = ["openssl", "genrsa", "-out", f"{self.folder}/accounts.key", "2048"]
        subprocess.run(key, check=True, capture_output=True)
        token = secrets.token_hex(16)
        texts = {
            "tokens.csv": f'{token},admin,1,"system:masters"\n',
            "kubeconfig": json.dumps(_kubeconfig(token)),
            "containerd.toml": CONTAINERD.format(folder=self.folder, pause=PAUSE_IMAGE),
            "network/10-pods.conflist": json.dumps(self._network()),
            "kubelet.json": json.dumps(self._kubelet()),
            "Corefile": COREFILE.format(domain=DOMAIN, kubeconfig=self.kubeconfig),
        }  # fmt: skip
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o600)

    def _network(self) -> Manifest:
        addresses = {"type": "host-local", "subnet": PODS, "dataDir": f"{self.folder}/addresses"}
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            # Why: else pods have no way to the addresses of services.
            "isDefaultGateway": True,
            "hairpinMode": True,
            "ipam": addresses,
        }
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    def _kubelet(self) -> Manifest:
        for hierarchy in _hierarchies():
            (hierarchy / self.folder.name).mkdir(exist_ok=True)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.folder.name}",
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            # Why: to lower it takes a right that not even root has everywhere.
            "oomScoreAdj": 0,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "clusterDNS": [ADDRESS],
            "clusterDomain": DOMAIN,
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "podLogsDir": f"{self.folder}/pod-logs",
            # Why: how full the machine's disk is says nothing about the chart.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "syncFrequency": "5s",
        }


def _hierarchies() -> Iterator[Path]:
    """Yield where control groups are: version 1 has a folder for each kind, version 2 is one."""
    top = Path("/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        yield top
    else:
        yield from (one for one in top.iterdir() if one.is_dir() and not one.is_symlink())


def _kubeconfig(token: str) -> Manifest:
    server = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "node", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "admin"}}],
        "current-context": "node",
    }


def _volume(folder: Path, storage_class: str = STORAGE_CLASS) -> Manifest:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": folder.name},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


STORAGE = (
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
)
CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/network"
"""
COREFILE = """\
{domain}:53 {{
  errors
  kubernetes {domain} {{
    kubeconfig {kubeconfig}
  }}
}}
"""
