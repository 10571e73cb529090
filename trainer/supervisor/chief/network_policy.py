"""Finds out whether the cluster enforces the job's NetworkPolicy: the chief tries to reach the API server, which the
policy forbids. Without a network plugin that enforces it the policy is only a text (decision 52)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable, Mapping

from trainer.job import environment

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
"""The API server's Service: the kubelet sets these in every container, also with enableServiceLinks: false."""
ANSWER_SECONDS = 3.0
PAUSES = (5.0,) * 8
"""Seconds between attempts. The network plugin may take that long to apply a policy to a pod that has started."""


async def warning(environ: Mapping[str, str] = os.environ, pauses: Iterable[float] = PAUSES) -> str | None:
    """One line if the policy is not enforced; None if it is, or if nothing can be said.

    A single attempt that fails shows that it is: of a policy that is applied late only the first attempts succeed.
    """
    node, host, port = (environ.get(name, "") for name in (environment.NODE_IP, HOST, PORT))
    if not (node and host and port.isdigit()):
        return None
    for pause in (0, *pauses):
        await asyncio.sleep(pause)
        certificate = await _certificate(host, int(port))
        # A pod may always connect to its own node (kubernetes.io/docs/concepts/services-networking/network-policies).
        if certificate is None or _names(certificate, node):
            return None
    return (
        f"this pod can connect to the API server ({host}:{port}), which the job's NetworkPolicy forbids: no network "
        "plugin of this cluster enforces NetworkPolicies, or another policy lets the pod out. TensorFlow's port runs "
        "what it is sent: let only pods that you trust into this cluster, or use a plugin such as Calico or Cilium"
    )


async def _certificate(host: str, port: int) -> bytes | None:
    """The certificate of the server there, in DER; None if none answers. A connection alone proves nothing: a service
    mesh's proxy in the pod accepts all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the machine's certificates, which take time to read
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        opening = asyncio.open_connection(host, port, ssl=context, ssl_handshake_timeout=ANSWER_SECONDS)
        _, writer = await asyncio.wait_for(opening, ANSWER_SECONDS)
    except (OSError, asyncio.TimeoutError):  # ssl.SSLError is an OSError
        return None
    try:
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate if isinstance(certificate, bytes) else None
    finally:
        writer.transport.abort()


def _names(certificate: bytes, address: str) -> bool:
    """Whether an IP address is among the certificate's names: that of an API server has its node's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        packed = socket.inet_pton(family, address)
    except OSError:
        return True  # nothing can be said
    # iPAddress in subjectAltName, RFC 5280: context tag 7, length, octets.
    return bytes([0x87, len(packed)]) + packed in certificate
