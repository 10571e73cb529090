from trainer.job.differences import differences


def test_each_value_that_differs_has_its_path_and_both_values() -> None:
    old = {"a": {"b": 1, "same": [1]}, "gone": "x"}
    new = {"a": {"b": 2.5, "same": [1]}, "new": {"c": None}}
    assert differences(old, new) == [
        "a.b: 1 there, 2.5 here",
        'gone: "x" there, unset here',
        'new: unset there, {"c": null} here',
    ]
    assert differences(old, old) == []
