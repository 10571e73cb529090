import pytest

from trainer.job import names


def test_names_of_a_task() -> None:
    assert names.task_name("worker", 1) == "worker:1"
    assert names.host_name("mnist", "worker", 1) == "mnist-worker-1"
    assert names.container_address("mnist", "worker", 1) == "mnist-worker-1.mnist:2222"


def test_a_container_address_can_be_taken_apart() -> None:
    assert names.split_address(names.container_address("mnist", "ps", 0)) == ("mnist-ps-0.mnist", 2222)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("localhost:1", "localhost", 1),
        ("10.0.0.1:2222", "10.0.0.1", 2222),
        ("[::1]:2222", "::1", 2222),
        ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
        ("a_b.example.:64535", "a_b.example.", 64535),
    ],
)
def test_split_address(address: str, host: str, port: int) -> None:
    assert names.split_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        *["", "host", "host:", ":2222", "host:x", "host:-1", "host:+1", "host:1_0", "host: 1", "host:1 ", "host:٣"],
        *["http://host:2222", "host/path:2222", "my host:2222", "\x00:2222", "::1:2222", "[::1:2222", "[]:2222"],
    ],
)
def test_what_is_no_address_is_refused_by_value_and_rule(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port") as caught:
        names.split_address(address)
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("port", ["0", "64536", "65535", "65536", "9" * 5000])
def test_a_port_out_of_range_is_refused(port: str) -> None:
    with pytest.raises(ValueError, match=r"port must be 1\.\.64535|Exceeds the limit"):
        names.split_address(f"host:{port}")


def test_the_highest_port_leaves_room_for_the_control_port() -> None:
    assert names.control_port(names.TF_PORT) == 3222
    assert names.control_port(names.MAX_TF_PORT) == 65535


@pytest.mark.parametrize("name", ["a", "a1", "mnist-ps", "x--y"])
def test_names_that_kubernetes_takes(name: str) -> None:
    assert names.DNS_LABEL.fullmatch(name)


@pytest.mark.parametrize("name", ["", "1a", "-a", "a-", "A", "a_b", "a.b", "a\n", "é"])
def test_names_that_kubernetes_refuses(name: str) -> None:
    assert not names.DNS_LABEL.fullmatch(name)
