"""Messages: tables of text."""

from trainer.job.messages import aligned


def test_what_a_file_or_program_said_controls_no_terminal_and_stays_in_its_line() -> None:
    rows = [("loss", "0.5"), ("last line", "\x1b]0;title\x07one\ntwo"), ("what", "é \u202e")]
    assert aligned(rows) == [
        "loss       0.5",
        r"last line  \x1b]0;title\x07one two",
        r"what       é \u202e",
    ]
