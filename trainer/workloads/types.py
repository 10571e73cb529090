"""Names for types of TensorFlow and Keras, which publish none: to a type checker each of these is Any.

They show a reader what a value is. This module imports neither library: the supervisor has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor, or what tf.convert_to_tensor takes; also a dict, list or tuple of them, as a model's inputs may be."""
Dataset: TypeAlias = Any
"""A tf.data.Dataset, or one distributed over replicas."""
Variable: TypeAlias = Any
"""Of Keras 3, or TensorFlow's own, which are those of tf_keras."""
Model: TypeAlias = Any
"""Of Keras 3 or tf_keras."""
Optimizer: TypeAlias = Any
Callback: TypeAlias = Any
"""Of fit."""
Strategy: TypeAlias = Any
"""A tf.distribute.Strategy."""
PerExample: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From (y, prediction) to one value per example."""
Settings: TypeAlias = dict[str, Any]
"""SETTINGS of a workload: literal values by name."""
