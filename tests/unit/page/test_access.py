"""Who may see a page: requests as browsers, tunnels and other machines make them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from aiohttp import ClientSession

from tests.unit.page.served import serving
from trainer.page import access

HERE = "127.0.0.1"


class Asked(NamedTuple):
    """A request."""

    remote: str
    path: str
    headers: dict[str, str]

    def refusal(self, names: set[str] | None = None) -> str | None:
        return access.refusal(*self, names)


def asked(remote: str = HERE, path: str = "/page/state", **headers: str) -> Asked:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Asked(remote, path, {"Host": "localhost:3222", **named})


@pytest.mark.parametrize(
    "given",
    [
        asked(),
        asked("::1"),
        asked(Host="127.0.0.1:3222"),
        asked(Host="[::1]:3222"),
        asked(Host="localhost"),
        asked(Origin="http://localhost:3222", Sec_Fetch_Site="same-origin"),
        asked(Sec_Fetch_Site="none"),
        asked(path="/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate"),
    ],
    ids=str,
)
def test_this_machine_may_ask(given: Asked) -> None:
    assert given.refusal() is None


REFUSED = {
    "another machine": asked("192.168.1.7"),
    "the proxy of a service mesh": asked("127.0.0.6"),
    "no name": asked(Host=""),
    "another name for this machine": asked(Host="evil.example:3222"),
    "a name that begins well": asked(Host="localhost.evil.example"),
    "a name that ends well": asked(Host="evil-localhost"),
    "an address of the network": asked(Host="192.168.1.7:3222"),
    "another address of this machine": asked(Host="127.0.0.6"),
    "another origin": asked(Origin="http://evil.example"),
    "another port of this machine": asked(Origin="http://localhost:8000"),
    "a sandboxed page": asked(Origin="null"),
    "no page at all": asked(Origin=""),
    "a script of another site": asked(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors"),
    "an image on another site": asked(path="/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"),
    "a page of another port": asked(Sec_Fetch_Site="same-site"),
    "a link to the document": asked(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_others_may_not(what: str) -> None:
    why = REFUSED[what].refusal()
    assert why
    assert why.isprintable()


NAMES = {"chief-0.mine", "box"}


@pytest.mark.parametrize("host", ["192.168.1.7:3222", "[fd00::7]:3222", "chief-0.mine:3222", "box", "localhost:1"])
def test_with_page_network_others_may_ask_by_an_address_or_a_name_of_the_chief(host: str) -> None:
    assert asked("192.168.1.9", Host=host).refusal(NAMES) is None


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Host": ""}])
def test_with_page_network_another_page_in_the_browser_still_may_not(headers: dict[str, str]) -> None:
    assert asked("192.168.1.9", **headers).refusal(NAMES)


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/page/state", "/page/events", "/page/logs", "/page/nothing"])
def test_every_route_refuses_another_origin_and_each_answer_has_the_headers(path: str) -> None:
    async def run() -> None:
        async with serving() as address, ClientSession() as session:
            async with session.get(address + path, headers={"Origin": "http://evil.example"}) as response:
                assert response.status == 403
                assert await response.text() == "Origin: 'http://evil.example': is another page\n"
                assert access.HEADERS.items() <= response.headers.items()
            async with session.get(address + path) as response:
                assert response.status in (200, 404)
                assert access.HEADERS.items() <= response.headers.items()

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_page_only_shows(method: str) -> None:
    async def run() -> int:
        async with (
            serving() as address,
            ClientSession() as session,
            session.request(method, f"{address}/page/state") as response,
        ):
            return response.status

    assert asyncio.run(asyncio.wait_for(run(), 20)) == 405
