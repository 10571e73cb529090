"""The last lines of a task: numbered, bounded, cheap as long as nobody looks."""

from __future__ import annotations

import threading

from trainer.supervisor.task.log_ring import LogRing, Stream


def texts(ring: LogRing, after: int = 0) -> list[str]:
    return [line.text for line in ring.lines(after)]


def test_lines_have_numbers_and_come_after_one() -> None:
    ring = LogRing()
    ring.add(b"a\nb\n", 1.0)
    ring.add(b"c\n", 2.0)
    assert [*ring.lines()] == [(1, 1.0, "a"), (2, 1.0, "b"), (3, 2.0, "c")]
    assert texts(ring, after=1) == ["b", "c"]
    assert texts(ring, after=3) == []


def test_the_oldest_lines_go_and_the_numbers_show_how_many() -> None:
    ring = LogRing(most_bytes=100)
    for number in range(1000):
        ring.add(f"line {number}\n".encode())
    found = [*ring.lines()]
    assert sum(len(line.text) + 1 for line in found) <= 100
    assert (found[-1].number, found[-1].text) == (1000, "line 999")
    assert [line.number for line in found] == list(range(found[0].number, 1001))


def test_more_than_fits_at_once_leaves_its_end() -> None:
    ring = LogRing(most_bytes=100)
    ring.add(b"before\n")
    ring.add(b"".join(b"%d\n" % number for number in range(1000)))
    found = [*ring.lines()]
    assert (found[-1].number, found[-1].text) == (1001, "999")
    assert found[0].text == str(found[0].number - 2)


def test_pieces_of_lines_are_put_together_for_each_output() -> None:
    ring = LogRing()
    one, other = Stream(ring), Stream(ring)
    one.feed(b"begin")
    other.feed(b"other\n")
    one.feed(b" end\nne")
    one.feed(b"xt\n")
    assert texts(ring) == ["other", "begin end", "next"]


def test_an_endless_line_does_not_take_the_memory() -> None:
    ring = LogRing()
    stream = Stream(ring)
    for _ in range(100):
        stream.feed(b"x" * 10_000)
    assert len(stream._rest) < 30_000
    assert all(len(text) <= 2000 for text in texts(ring))


def test_threads_may_write_at_the_same_time() -> None:
    ring = LogRing(most_bytes=1 << 22)

    def write(name: str) -> None:
        stream = Stream(ring)
        for number in range(2000):
            stream.feed(f"{name} {number}\n".encode())

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [*ring.lines()]
    assert [line.number for line in found] == list(range(1, 8001))
    for name in "abcd":
        assert [line.text for line in found if line.text[0] == name] == [f"{name} {n}" for n in range(2000)]
