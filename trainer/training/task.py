"""The job spec, task and workload of a child, and the numbers derived from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import keras
import numpy as np
import tensorflow as tf

from trainer import host
from trainer.job import derived
from trainer.job.cluster import Task
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint, compatibility
from trainer.protocol import events
from trainer.training import inputs
from trainer.training.exchange import broadcast
from trainer.training.exchange.ring import Ring
from trainer.training.inputs.records.opened import opened
from trainer.training.inputs.records.reader import Records
from trainer.training.runtime import devices, per_example
from trainer.training.runtime.created_variables import Created
from trainer.training.runtime.user_code import called, calling
from trainer.workloads import datasets
from trainer.workloads.estimator import Context, Hook
from trainer.workloads.files import Files
from trainer.workloads.load import load_workload
from trainer.workloads.types import Callback, Dataset, Model, PerExample, Tensor
from trainer.workloads.workload import Shard, Workload


@dataclass(frozen=True)
class TrainingTask:
    """Spec, task and workload of a child. `arrays` holds the named dataset, if the workload uses one."""

    spec: JobSpec
    task: Task
    workload: Workload
    arrays: datasets.Arrays | None
    class_weight: Mapping[int, float] | None = None
    """The argument class_weight of fit."""
    send: Callable[[events.Event], None] = lambda _: None
    """Takes events about what takes long before the first step."""
    created: Created = field(default_factory=Created)
    """The variables that were created when the workload was imported."""
    models: list[Model] = field(default_factory=list)
    """The first model that was built for the task, if any. Later copies must have the same variables."""
    ring: Ring | None = None
    """The ring by which gradients are added up over tasks, if TensorFlow does not do so."""

    @cached_property
    def replicas(self) -> int:
        """Model copies whose gradients make one step."""
        return derived.replicas_in_sync(self.spec, self.task.counts)

    @property
    def local_replicas(self) -> int:
        """Model copies on this task."""
        return self.replicas // len(self.task.members())

    @cached_property
    def global_batch(self) -> int:
        """Examples in one step."""
        return derived.batch_sizes(self.spec, self.task.counts)[0]

    @cached_property
    def batch(self) -> int:
        """Examples in one replica's part of a step."""
        return derived.batch_sizes(self.spec, self.task.counts)[1]

    @cached_property
    def learning_rate(self) -> float:
        return derived.learning_rate(self.spec, self.task.counts)

    def from_chief(self, values: checkpoint.Values, use: int) -> checkpoint.Values:
        """The chief's values on every task; see broadcast.py."""
        return broadcast.from_chief(values, self.task, self.ring, use)

    def text_from_chief(self, text: str, use: int) -> str:
        """The chief's text on every task."""
        return broadcast.text_from_chief(text, self.task, self.ring, use)

    def total_steps(self, source: inputs.Source) -> int:
        """The step at which the job ends."""
        train = self.spec.train
        if train.epochs is not None:
            return self.steps_in_epoch(source) * train.epochs
        default = self.workload.train_spec and self.workload.train_spec.max_steps
        return train.steps or default or derived.DEFAULT_STEPS

    def steps_in_epoch(self, source: inputs.Source) -> int:
        """Returns the steps of an epoch: those of the spec, or of one pass over the training data.

        Raises:
            UserError: neither is known.
        """
        if self.spec.train.steps_per_epoch is not None:
            return self.spec.train.steps_per_epoch
        if source.of_one_shard:
            # All shards, so that every task has the same number.
            source = self.split(Shard("train", seed=self.spec.train.seed))
        count = source.count()
        if count is None:
            size = "its size: dataset.apply(tf.data.experimental.assert_cardinality(n))"
            if isinstance(source, inputs.Batches):
                size = "leave the last batch out: dataset.batch(..., drop_remainder=True)"
            raise UserError(
                "train.epochs, callbacks(): data() gives a Dataset, whose size is not known; give "
                f"train.steps_per_epoch, or {size}"
            )
        return max(1, count // self.global_batch)

    def split(self, shard: Shard) -> inputs.Split:
        """What the workload gives for a shard, including the examples that are to validate."""
        function = self.workload.validation if shard.split == "validation" else self.workload.data
        if function is not None:
            what = "validation()" if shard.split == "validation" else f"data({shard.split!r})"
            with calling(self.workload.name, what):
                value = function(shard)
            if isinstance(value, Files):
                name, directory = self.workload.name, self.spec.directory
                max_bad = self.spec.train.max_bad_records
                return opened(
                    value, what, shard.split, workload=name, model_dir=directory, max_bad=max_bad,
                    report=self._indexing, in_graphs=self.spec.traits.coordinated,
                )  # fmt: skip
            return inputs.source(value, what, self._tell)
        assert self.arrays is not None
        names = [f"{part}_{shard.split}" for part in "xy"]
        return inputs.source(tuple(self.arrays[name] for name in names), f"the dataset's {' and '.join(names)}")

    def _indexing(self, done: int, line: str | None) -> None:
        self.send(events.Indexing(done))
        if line:
            self._tell(line)

    def _tell(self, line: str) -> None:
        self.send(events.Line(f"{self.task.name}: {line}"))

    @cached_property
    def part(self) -> inputs.Part:
        """What this task reads of the training data; of a coordinator, which reads none, its first worker."""
        if self.spec.traits.coordinated:
            place, readers, local = 0, self.task.counts["worker"], 1
        else:
            members = self.task.members()
            place, readers = members.index((self.task.type, self.task.index)), len(members)
            local = self.local_replicas
        return inputs.Part(self.batch, readers, place, local, self.spec.train.seed)

    def require_unchanged_files(self) -> None:
        """Checks that the files of records that this task trains on have not changed.

        Raises:
            UserError: names the first that has.
        """
        if self.records is not None:
            self.records.require_unchanged()

    @property
    def bad_records(self) -> int | None:
        """Damaged records that are left out of the training data; None unless these are files of records."""
        return None if self.records is None else self.records.index.left_out

    @property
    def records(self) -> Records | None:
        """The training data if they are files of records, also where fit gives their classes weights."""
        return self._all_training if isinstance(self._all_training, Records) else None

    @cached_property
    def _all_training(self) -> inputs.Source:
        return self._training_shard(self.part.index)

    def _training_shard(self, index: int | Tensor) -> inputs.Source:
        if self.workload.train_spec is not None:
            return inputs.InputFn(self.workload.train_spec.input_fn, self.replicas, self._tell)
        return self.split(Shard("train", index, self.part.shards, self.spec.train.seed))

    def with_fit(
        self,
        callbacks: Callable[[], list[Callback]],
        validation: Callable[[Shard], object] | None,
        class_weight: Mapping[int, float] | None,
    ) -> TrainingTask:
        """The same task with what fit was given. Data that were read stay."""
        workload = replace(self.workload, callbacks=callbacks, validation=validation or self.workload.validation)
        changed = replace(self, workload=workload, class_weight=class_weight)
        vars(changed).update(_all_training=self._all_training, _test=self._test)
        return changed

    @cached_property
    def training(self) -> inputs.Source:
        """This task's training data: the whole split, or the part that the workload gives for it."""
        return self._weighted(self._divided()[0] if self.spec.train.validation_split else self._all_training)

    def training_of(self, worker: Tensor) -> inputs.Source:
        """The training data of a worker under parameter_server, if the workload gives each its part."""
        return self._weighted(self._training_shard(worker))

    def _weighted(self, source: inputs.Source) -> inputs.Source:
        return inputs.Weighted(source, self.class_weight) if self.class_weight else source

    def validation(self) -> Dataset | None:
        """Finite batches to validate with, in the form that Keras' `evaluate` takes; None if there are none.

        They are the same on every task, and for one of them to evaluate.
        """
        split = self._validation_split
        return None if split is None else inputs.untuned(split.evaluation())

    @cached_property
    def _validation_split(self) -> inputs.Split | None:
        if self.spec.train.validation_split:
            return self._divided()[1]
        function, arrays = self.workload.validation, self.arrays or {}
        if function is None and "x_validation" not in arrays:
            return None
        return self.split(Shard("validation", seed=self.spec.train.seed))

    def _divided(self) -> tuple[inputs.Arrays, inputs.Arrays]:
        share, training = self.spec.train.validation_split, self._all_training
        if self.workload.validation is not None or "x_validation" in (self.arrays or {}):
            raise UserError(
                f"train.validation_split: {share:g}: there is validation data of its own; remove one of both"
            )
        if not isinstance(training, inputs.Arrays):
            raise UserError(
                f"train.validation_split: {share:g}: data() gives no arrays, which alone can be divided; define "
                "validation(shard) instead"
            )
        return training.divided(share)

    def evaluation(self) -> Dataset:
        """Finite batches to evaluate on."""
        wanted = self.workload.eval_spec
        if wanted is not None:
            dataset = inputs.pairs(wanted.input_fn(Context(1, 0, 1, self.batch)))
            dataset = dataset.take(-1 if wanted.steps is None else wanted.steps)
            return inputs.untuned(inputs.finite(dataset, "the EvalSpec's input_fn()"))
        return inputs.untuned(self._test().evaluation())

    @property
    def validates(self) -> bool:
        """Whether anything uses validation data."""
        keep = self.spec.keep_best
        return self.workload.callbacks is not None or bool(keep and keep.of_validation)

    def splits_to_evaluate(self) -> list[tuple[inputs.Split, str]]:
        """The data that this job evaluates on, without those of an EvalSpec, each with the call that gives them."""
        named, splits = "dataset" if self.workload.data is None else None, list[tuple[inputs.Split, str]]()
        if self.workload.evaluate is None and self.workload.eval_spec is None:
            splits.append((self._test(), named or "data('test')"))
        if self.validates and (split := self._validation_split) is not None:
            splits.append((split, "validation()" if self.workload.validation else named or "data('train')"))
        return splits

    @cached_property
    def _test(self) -> Callable[[], inputs.Split]:
        """Reads the test data in its first call."""
        return cache(lambda: self.split(Shard("test", seed=self.spec.train.seed)))

    def begin(self) -> None:
        for hook in self._hooks:
            hook.begin()

    def after_run(self, step: int, figures: Mapping[str, float]) -> None:
        """Calls the workload's hooks after a step; `values` is a vector of loss and metrics."""
        for hook in self._hooks:
            hook.after_run(step, figures)

    def end(self, step: int) -> None:
        for hook in self._hooks:
            hook.end(step)

    @property
    def _hooks(self) -> Sequence[Hook]:
        return self.workload.train_spec.hooks if self.workload.train_spec else ()

    def figures(self, values: Tensor) -> dict[str, float]:
        """Converts a vector of loss and metrics to a dict by name."""
        return dict(zip(self.figure_names, np.array(values).tolist(), strict=True))

    @cached_property
    def figure_names(self) -> list[str]:
        return ["loss", *self.metrics]

    @property
    def compatibility_key(self) -> dict[str, object]:
        key, known = (
            compatibility.key(self.spec, self.task.counts, self.workload.sha256),
            vars(self).get("_all_training"),
        )
        # An evaluator does not read the training data, and compares no digest of it.
        return {**key, "files_sha256": known.index.sha256} if isinstance(known, Records) else key

    @property
    def loss(self) -> PerExample:
        loss = self.workload.loss
        return called(self.workload.name, "loss" if loss else "the default loss", loss or per_example.cross_entropy)

    @property
    def metrics(self) -> dict[str, PerExample]:
        if self.workload.metrics is not None:
            name = self.workload.name
            return {key: called(name, f"METRICS[{key!r}]", f) for key, f in self.workload.metrics.items()}
        # Accuracy is meaningful only with the default loss, and so with integer labels.
        return {"accuracy": per_example.accuracy} if self.workload.loss is None else {}


Load = Callable[[], TrainingTask]
"""Imports the workload, unless that was done during standby; to be called after the strategy is created."""


def load_task(spec: JobSpec, task: Task, send: Callable[[events.Event], None] = lambda _: None) -> TrainingTask:
    """Imports the workload and reads its dataset."""
    created = Created()
    with created.noting():
        loaded = load_workload(spec)
    arrays = datasets.load(loaded.dataset, spec.dataset_sha256) if loaded.dataset and not loaded.data else None
    return TrainingTask(spec, task, loaded, arrays, send=send, created=created)


def prepare_process(spec: JobSpec, task: Task) -> None:
    """Sets thread counts, GPUs, determinism and precision, before the first TensorFlow operation, which a workload file
    may run when it is imported.

    Raises:
        TrainerError: Exit.DEVICES, if the task sees fewer GPUs than the spec asks for.
    """
    group = spec.tasks.of(task.type)
    devices.limit_threads(host.cpus(group.cpu))
    tf.config.set_visible_devices(devices.require_gpus(group.gpus)[: group.gpus], "GPU")
    if group.cpu_devices > 1:
        logical = [tf.config.LogicalDeviceConfiguration()] * group.cpu_devices
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical)
    if spec.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    if spec.train.mixed_precision != "none":
        keras.mixed_precision.set_global_policy(f"mixed_{spec.train.mixed_precision}")
