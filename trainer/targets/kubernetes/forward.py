"""A port-forward to the chief's control port, through the API server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import ClientWebSocketResponse, WSMsgType
from kubernetes.aio.stream import WsApiClient

from trainer.job.errors import TrainerError
from trainer.job.names import TF_PORT, control_port
from trainer.targets.kubernetes import lookup, pods
from trainer.targets.kubernetes.api_server import ApiServer, SignedOut, connect
from trainer.targets.tunnel import Dial, Stream, Tunnel

HEARTBEAT_SECONDS = 15.0
_DATA, _ERROR = 0, 1
"""Channels of the protocol v4.channel.k8s.io (kubelet/pkg/cri/streaming/portforward/websocket.go). The first message
of each has the number of the port."""


class WebSocketStream:
    """Messages of a WebSocket: a byte for the channel, and data."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._begun: set[int] = set()

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if message.type is not WSMsgType.BINARY:  # it is closed
                return b""
            channel, data = message.data[0], message.data[1:]
            if channel not in self._begun:
                self._begun.add(channel)
            elif channel == _ERROR:
                raise ConnectionError(data.decode(errors="replace"))
            elif data:
                return bytes(data)

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(bytes([_DATA]) + data)

    async def close(self) -> None:
        await self._socket.close()


def tunnel(name: str, namespace: str | None) -> Tunnel:
    """A tunnel to the chief of a job, whichever pod that is when a connection is made."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Dial]:
        async with contextlib.AsyncExitStack() as stack:

            async def sign_in() -> tuple[ApiServer, WsApiClient]:
                server = await stack.enter_async_context(connect(namespace))
                api = WsApiClient(server.settings, heartbeat=HEARTBEAT_SECONDS)
                return server, await stack.enter_async_context(api)

            clients = await sign_in()

            async def dial() -> Stream:
                nonlocal clients
                try:
                    with contextlib.suppress(SignedOut):
                        return await _dial(*clients, name)
                    clients = await sign_in()  # a token of some clouds lasts for minutes, and a page is open for a day
                    return await _dial(*clients, name)
                except TrainerError as error:
                    raise ConnectionError(str(error)) from None

            yield dial

    return opened


async def _dial(server: ApiServer, api: WsApiClient, name: str) -> Stream:
    """
    Raises:
        ConnectionError: the chief does not run, or the user may not forward its port.
        TrainerError: Kubernetes does not answer, or refuses.
    """
    its_chief = pods.chief_of(await lookup.jobs(server, lookup.of(name)))
    pod = pods.newest(await lookup.pods(server, name), its_chief[1]) if its_chief else None
    if pod is None or "running" not in pods.state_of(pod):
        raise ConnectionError("the chief does not run")
    return WebSocketStream(await server.forward(api, pod["metadata"]["name"], control_port(TF_PORT)))
