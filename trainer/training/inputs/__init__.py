"""Input pipelines: what data() gives, as endless batches of a task that can begin at any step."""

from trainer.training.inputs.arrays import Arrays
from trainer.training.inputs.data_value import source
from trainer.training.inputs.datasets import Batches, Examples, InputFn, pairs, small_batches
from trainer.training.inputs.for_model import (
    require_examples,
    require_one_input,
    require_one_split,
    require_shapes,
    structure,
)
from trainer.training.inputs.source import EVALUATION_BATCH, Part, Source, Split, finite, require_some, untuned
from trainer.training.inputs.weighted import Weighted, unweighted

__all__ = [
    "EVALUATION_BATCH", "Arrays", "Batches", "Examples", "InputFn", "Part", "Source", "Split", "Weighted",
    "finite", "pairs", "require_examples", "require_one_input", "require_one_split", "require_shapes", "require_some",
    "small_batches", "source", "structure", "untuned", "unweighted",
]  # fmt: skip
