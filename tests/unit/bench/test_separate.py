"""The tables of results that are measured apart."""

from __future__ import annotations

from tests.bench import separate


def test_a_network_s_table_has_the_fastest_first_and_names_what_was_not_reached() -> None:
    figures = {
        "MWMS, trainer": {
            "100": {"examples_per_second": [90.0, 110.0, 100.0], "seconds_to_accuracy": []},
            "2500": {"examples_per_second": [900.0], "seconds_to_accuracy": [12.5]},
        },
        "torch DDP": {"100": {"examples_per_second": [50.0], "seconds_to_accuracy": [70.0]}},
    }
    assert separate.network_table(figures) == [
        "| median (95 %) | 2.5 Gbit/s: examples/s | 100 Mbit/s: examples/s | 2.5 Gbit/s: seconds to the accuracy "
        "| 100 Mbit/s: seconds to the accuracy |",
        "|---|---|---|---|---|",
        "| MWMS, trainer | 900 (900 to 900) | 100 (90 to 110) | 12.5 (12.5 to 12.5) | not reached |",
        "| torch DDP | not reached | 50 (50 to 50) | not reached | 70.0 (70.0 to 70.0) |",
    ]


def test_a_table_of_accuracies_has_mean_and_deviation_over_seeds() -> None:
    figures = {"cnn": {"every: 7": {"equal_examples": [0.97, 0.98, 0.99], "equal_seconds": [0.5]}}}
    assert separate.accuracy_table(figures)[2:] == ["| cnn | every: 7 | 0.9800 ± 0.0100 | 0.5000 | 3 |"]
