"""Values that people install the chart with, by name."""

from typing import Any

BROKER = {"url": "artemis+ssl://amqsidecar@broker:61617"}
POSTGRES = {"url": "postgresql://amqsidecar@db1,db2:5433/redelivery?sslmode=verify-full"}

RESTRICTED: dict[str, Any] = {
    "resources": {"limits": {"memory": "64Mi"}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
"""A container of somebody else's."""

MINIMAL: dict[str, Any] = {"config": {"broker": BROKER}}
SHARED: dict[str, Any] = {"shape": "shared", "config": {"broker": BROKER, "store": POSTGRES}}

CASES: dict[str, dict[str, Any]] = {
    "beside, nothing but the broker": MINIMAL,
    "beside, with a listener": {
        "config": {"broker": BROKER, "listener": {"acceptor": "stomp+ssl://broker:61614"}},
        "listener": {
            "enabled": True,
            "certificateSecret": "clients",
            "caSecret": "authorities",
            "copyKeysSecret": "seals",
            "from": [{"podSelector": {"matchLabels": {"app": "orders"}}}],
        },
    },
    "beside, with a fleet": {
        "config": {
            "broker": BROKER,
            "http": {
                "public_url": "https://sidecar.example.com",
                "oidc": {"issuer": "https://id.example.com/realm", "client_id": "amqsidecar"},
                "operator_groups": ["mq"],
            },
            "fleet": {
                "sidecars": {"mail": "https://amqsidecar.mail.example.com"},
                "services": ["sidecars.orders:9465"],
                "pods": "app.kubernetes.io/name=amqsidecar",
                "namespaces": ["pay", "stock"],
                "console_url": "https://{name}.example.com",
            },
        },
        "access": {"oidcSecret": "oidc", "sessionKeySecret": "key"},
        "broker": {"passwordSecret": "login"},
        "fleet": {
            "enabled": True,
            "host": "fleet.example.com",
            "tlsSecret": "tls",
            "caSecret": "authorities",
            "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        },
    },
    "beside, observing": MINIMAL | {"observe": True},
    "beside, all secrets": MINIMAL
    | {
        "broker": {
            "passwordSecret": "login",
            "passwordKey": "pw",
            "caConfigMap": "bundle",
            "certificateSecret": "client",
        },
        "policy": {"existingConfigMap": "rules", "key": "broker.xml"},
        "access": {"tokensSecret": "tokens", "usersSecret": "users", "sessionKeySecret": "key"},
    },
    "beside, a projected token": {
        "config": {"broker": BROKER | {"token_file": "/var/run/secrets/broker/token"}},
        "extraVolumes": [
            {
                "name": "broker-token",
                "projected": {
                    "sources": [
                        {
                            "serviceAccountToken": {
                                "path": "token",
                                "audience": "broker",
                                "expirationSeconds": 3600,
                            }
                        }
                    ]
                },
            }
        ],
        "extraVolumeMounts": [
            {"name": "broker-token", "mountPath": "/var/run/secrets/broker", "readOnly": True}
        ],
    },
    "beside, rules as a file": MINIMAL | {"policy": {"content": "<beans>\n {{x}}\n</beans>\n"}},
    "beside, rules as values": {
        "config": {
            "broker": BROKER,
            "policy": {"rules": {"plugins": [{"redelivery": {"default_entry": {}}}]}},
            "history": {"max_events": 2_000_000},
            "http": {"listen": "[::]:8080"},
        },
    },
    "beside, gates and a journal": {
        "config": {
            "broker": {"url": "openwire+ssl://amqsidecar@broker"},
            "policy": {
                "gates": [
                    {"breaker": {"default_entry": {"share": 0.5}}},
                    {"pace": {"entries": [{"queue": "orders.>", "messages": 20}]}},
                ]
            },
            "journal": {"path": "/var/lib/amqsidecar/journal"},
        },
        "monitoring": {"rules": True, "runbookUrl": "https://wiki.example.com/runbooks"},
    },
    "beside, an ingress": MINIMAL
    | {
        "access": {"usersSecret": "users"},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "redelivery.example.com",
            "tlsSecret": "tls",
            "annotations": {"cert-manager.io/cluster-issuer": "ours"},
        },
    },
    "beside, a Gateway": MINIMAL
    | {
        "access": {"usersSecret": "users"},
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "public", "namespace": "gateways"}],
            "hostnames": ["redelivery.example.com", "redelivery.example.org"],
            "filters": [
                {
                    "type": "ResponseHeaderModifier",
                    "responseHeaderModifier": {"set": [{"name": "X-From", "value": "us"}]},
                }
            ],
            "labels": {"team": "mq"},
        },
    },
    "beside, all that others add": MINIMAL
    | {
        "commonLabels": {"team": "mq"},
        "commonAnnotations": {"contact": "mq@example.com"},
        "persistence": {
            "labels": {"backup": "daily"},
            "annotations": {"backup.example/keep": "7"},
            "whenDeleted": "Delete",
        },
        "workload": {"annotations": {"reloader.stakater.com/auto": "true"}},
        "revisionHistoryLimit": 3,
        "envFrom": [{"secretRef": {"name": "proxy"}}],
        "initContainers": [RESTRICTED | {"name": "before", "image": "registry.example/before"}],
        "extraContainers": [RESTRICTED | {"name": "proxy", "image": "registry.example/proxy"}],
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": '{{ include "amqsidecar.fullname" . }}-login'},
                "stringData": {"password": "x"},
            },
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: '{{ .Release.Name }}-backup'}\n"
            "spec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: "
            "{restartPolicy: Never, containers: [{name: a, image: b}]}}}}}",
        ],
        "monitoring": {
            "serviceMonitor": True,
            "monitor": {
                "endpoint": {
                    "scrapeTimeout": "9s",
                    "honorLabels": True,
                    "metricRelabelings": [{"action": "drop", "regex": "go_.*"}],
                },
                "spec": {"jobLabel": "app.kubernetes.io/name", "sampleLimit": 5000},
                "annotations": {"team": "mq"},
            },
        },
    },
    "beside, an existing claim": MINIMAL
    | {"persistence": {"existingClaim": "mine", "storageClass": "fast"}},
    "beside, no store": {
        "config": {"broker": BROKER, "store": {"url": "broker:"}, "intake": {"backlog": "process"}}
    },
    "beside, behind a proxy": {
        "config": {
            "broker": {"url": ["amqps://a@one", "amqps://a@two"], "password_file": "/extra/pw"},
            "http": {
                "trusted_proxies": "10.0.0.0/8",
                "proxy_user_header": "X-Forwarded-User",
                "operator_groups": ["*"],
            },
        },
        "extraVolumes": [{"name": "extra", "secret": {"secretName": "extra"}}],
        "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra", "readOnly": True}],
    },
    "beside, everything of Kubernetes": MINIMAL
    | {
        "image": {"repository": "registry.example/amqsidecar", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "mq"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "mq", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
        "extraEnv": [{"name": "TZ", "value": "Europe/Berlin"}],
        "networkPolicy": {
            "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "extraEgress": [{"ports": [{"port": 443}]}],
        },
        "service": {"type": "NodePort", "port": 80},
        "monitoring": {"serviceMonitor": True, "labels": {"release": "prometheus"}},
        "serviceAccount": {"create": False},
        "nameOverride": "redeliver",
    },
    "beside, on OpenShift": MINIMAL
    | {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
    "shared": SHARED,
    "shared, all": SHARED
    | {
        "replicas": 3,
        "broker": {"passwordSecret": "login", "caSecret": "ca"},
        "store": {"passwordSecret": "db", "caSecret": "db-ca"},
        "access": {"usersSecret": "users", "sessionKeySecret": "key"},
        "monitoring": {"podMonitor": True},
        "fullnameOverride": "resend",
    },
    "shared, OpenID": SHARED
    | {
        "config": {
            "broker": BROKER,
            "store": POSTGRES,
            "http": {
                "public_url": "https://redelivery.example.com",
                "oidc": {
                    "issuer": "https://login.example.com/realms/ops",
                    "client_id": "amqsidecar",
                },
                "operator_groups": ["ops"],
            },
        },
        "access": {"oidcSecret": "oidc", "sessionKeySecret": "key"},
    },
    "shared, a journal for many writers": {
        "shape": "shared",
        "config": {"broker": BROKER, "store": POSTGRES, "journal": {"path": "/journal/mq"}},
        "extraVolumes": [
            {"name": "journal", "persistentVolumeClaim": {"claimName": "journal"}},
            {"name": "authorities", "configMap": {"name": "authorities"}},
        ],
        "extraVolumeMounts": [
            {"name": "journal", "mountPath": "/journal"},
            {"name": "authorities", "mountPath": "/authorities", "readOnly": True},
        ],
        "serviceAccount": {"annotations": {"cloud.example/role": "journal"}},
    },
    "shared, one": SHARED | {"replicas": 1},
    "inPod": MINIMAL | {"shape": "inPod", "monitoring": {"podMonitor": True}},
}
