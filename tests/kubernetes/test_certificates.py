"""`artemis+ssl://` with certificates on both sides, each replaced by one of a new authority."""

from pathlib import Path

from kubernetes import broker_pods
from kubernetes.broker_pods import NAME, SECURE, STORES
from kubernetes.load import Account, Load
from kubernetes.namespace import Namespace, restarts
from kubernetes.values import values
from support.machine.certificates import Pki

AUTHORITIES, CLIENT = "authorities", "client-certificate"


def give_broker(namespace: Namespace, key_of: Pki, trusts: Pki) -> None:
    """Give the broker a certificate of one authority, and let it trust another one's clients."""
    namespace.secret_files(
        STORES,
        {
            "key.p12": key_of.broker_stores(hosts=[NAME]).key_store,
            "trust.p12": trusts.broker_stores("trusting").trust_store,
        },
    )


def give_sidecar(namespace: Namespace, certificate_of: Pki) -> None:
    """Give the sidecar a client's certificate."""
    made = certificate_of.client("sidecar")
    namespace.secret_files(CLIENT, {"tls.crt": made.certificate, "tls.key": made.key})


def let_sidecar_trust(namespace: Namespace, *authorities: Pki) -> None:
    text = "".join(one.ca_file.read_text(encoding="utf-8") for one in authorities)
    namespace.secret(AUTHORITIES, **{"ca.crt": text})


def test_a_new_authority_replaces_the_old_one_without_a_restart(
    namespace: Namespace, tmp_path: Path, account: Account
) -> None:
    """The broker is started again at each step, the sidecar never."""
    old, new = Pki(tmp_path / "old"), Pki(tmp_path / "new")
    let_sidecar_trust(namespace, old)
    give_sidecar(namespace, old)
    give_broker(namespace, old, trusts=old)
    peer = broker_pods.start(namespace, SECURE)
    secrets = {"caSecret": AUTHORITIES, "certificateSecret": CLIENT}
    chosen = values(SECURE)
    namespace.install(chosen | {"broker": chosen["broker"] | secrets})
    with Load(peer, SECURE) as load:
        load.go_on()
        pod = namespace.get("pod", namespace.pod())

        let_sidecar_trust(namespace, old, new)
        give_broker(namespace, new, trusts=old)
        broker_pods.restart(namespace)
        load.go_on()

        give_sidecar(namespace, new)
        let_sidecar_trust(namespace, new)
        give_broker(namespace, new, trusts=new)
        broker_pods.restart(namespace)
        load.go_on()
        account(load.settle(namespace))
    after = namespace.get("pod", namespace.pod())
    assert (after["metadata"]["uid"], restarts(after)) == (pod["metadata"]["uid"], 0)
