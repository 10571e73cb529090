"""Reads records by an index, in graph operations only: a ps-worker has no Python (decision 4).

An epoch is a permutation of the blocks of all files, drawn from (seed, epoch). In this order the records are cut into
windows of some steps; of the records that are too few for a step, some are left out before the first window and the
others behind the last. A window is a matrix of a lane for each example of a step; a lane holds one record for each step
of the window, in an order drawn from (seed, epoch, window). A shard reads its own lanes, which are adjacent records. So
no record occurs twice in an epoch, N shards of b examples read the same examples as one shard of N*b, and a resumed run
begins at the start of its window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.records import checksums, kept, storage
from trainer.training.inputs.records.index import Index
from trainer.training.inputs.records.parquet import Rows
from trainer.training.inputs.source import EVALUATION_BATCH, Part
from trainer.workloads.types import Dataset, Tensor

WINDOW_BYTES = 1 << 26
"""Memory of a window over all shards. A task holds its part of three windows at a time."""
OTHER_FILE = "trainer.files: another file"
_TAIL_BYTES = 16
_INT64_MAX = 2**63 - 1


def _as_it_is(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Not converted by AutoGraph, which would take a tenth of a second at each start for no benefit."""
    made: Callable[..., Tensor] = tf.autograph.experimental.do_not_convert(function)
    return made


def _options() -> tf.data.Options:
    # Within a function the fusion fails if parse uses a table: "can't delete node(s) with retained fanouts" (2.21).
    options = tf.data.Options()
    options.experimental_optimization.map_and_batch_fusion = False
    return options


class _Blocks(NamedTuple):
    """The blocks of all files, as vectors."""

    file: Tensor
    offset: Tensor
    count: Tensor
    bytes: Tensor


class _Table(NamedTuple):
    """An index as tensors: all blocks, and by file the others."""

    blocks: _Blocks
    names: Tensor
    compressions: Tensor
    sizes: Tensor


class _Pieces(NamedTuple):
    """Parts of blocks to be read: vectors, or the scalars of one."""

    block: Tensor
    skip: Tensor
    take: Tensor


@dataclass(frozen=True)
class Records:
    """The records of files as examples."""

    index: Index
    parse: Callable[[Tensor], Tensor]
    """A function of TensorFlow."""
    what: str
    """The call that gave the files, for messages: data('train')."""
    shuffle: bool = True
    window: int | None = None
    """Records of a window; by default as many as WINDOW_BYTES hold."""
    rows: Rows | None = None
    """Reads them if TensorFlow cannot."""
    of_one_shard: ClassVar[bool] = False

    def count(self) -> int:
        return self.index.count

    def require_unchanged(self) -> None:
        """
        Raises:
            UserError: a file has changed.
        """
        kept.require_unchanged(self.index)

    def batches(self, part: Part) -> Dataset:
        per_step = part.per_step
        count, steps = self.index.count, self.index.count // per_step
        if steps == 0:
            raise UserError(
                f"train.batch_size: one step takes {per_step} examples, the data has {count}; make it smaller"
            )
        window = self.window or WINDOW_BYTES * count // max(1, self.index.bytes)
        return _Plan(self, part, steps, min(steps, max(1, window // per_step))).batches()

    def evaluation(self, batch: int = EVALUATION_BATCH) -> Dataset:
        counts = self.table.blocks.count
        blocks = tf.range(len(counts), dtype=tf.int64)
        pieces = _Pieces(blocks, tf.zeros_like(blocks), counts)
        if self.rows is None:
            read = self.read(pieces).batch(batch)
        else:
            rows = self.rows
            groups = tf.data.Dataset.from_tensor_slices(pieces).batch(1)
            read = groups.map(_as_it_is(lambda each: rows.read(*each))).rebatch(batch)
        parsed = read.map(self.examples(), num_parallel_calls=tf.data.AUTOTUNE)
        return parsed.prefetch(2).with_options(_options())

    def examples(self, batch: int | None = None) -> Callable[[Tensor], Tensor]:
        """A function from the records of a batch, of this size if it is known, to the batch.

        It parses them one after another, and is to be called for several batches at a time: calls in parallel for
        single records take more time than most records need.
        """

        def parsed(records: Tensor) -> Tensor:
            each = tf.data.Dataset.from_tensor_slices(records).map(self.parse)
            size = tf.shape(tf.nest.flatten(records)[0], tf.int64)[0] if batch is None else batch
            return each.batch(size, drop_remainder=batch is not None).get_single_element()

        return _as_it_is(parsed)

    @cached_property
    def table(self) -> _Table:
        files = self.index.files
        numbers = np.repeat(np.arange(len(files)), [len(file.counts) for file in files])
        joined = [np.concatenate([getattr(file, name) for file in files]) for name in ("offsets", "counts", "bytes")]
        with tf.init_scope():  # eager tensors, which a graph captures as inputs
            blocks = _Blocks(*(tf.constant(each, tf.int64) for each in (numbers, *joined)))
            names, compressions = ([getattr(file, each) for file in files] for each in ("name", "compression"))
            sizes = tf.constant([file.stat.size for file in files], tf.int64)
            return _Table(blocks, tf.constant(names), tf.constant(compressions), sizes)

    def compared(self) -> Dataset:
        """One element, once the files of a ps-worker have the size and the last bytes of the chief's, which reads them
        here: a ps-worker has no Python. damage.py names the error if they have not."""
        files = [file for file in self.index.files if file.records and not storage.is_remote(file.name)]
        with tf.init_scope():
            each = (
                tf.constant([file.name for file in files], tf.string),
                tf.constant([file.stat.size for file in files], tf.int64),
                tf.constant([storage.tail(file.name, file.stat.size, _TAIL_BYTES) for file in files], tf.string),
            )

        def compare(name: Tensor, size: Tensor, tail: Tensor) -> Tensor:
            count = tf.minimum(size, _TAIL_BYTES)
            last = tf.data.FixedLengthRecordDataset(name, count, size - count).take(2)
            differing = last.reduce("", lambda a, b: a + b)
            with tf.control_dependencies([tf.debugging.Assert(differing == tail, [OTHER_FILE, name])]):
                return tf.identity(size)

        compared = tf.data.Dataset.from_tensor_slices(each).map(_as_it_is(compare), num_parallel_calls=16)
        return compared.batch(max(1, len(files)))

    def read(self, pieces: _Pieces) -> Dataset:
        """The records of these pieces, one after another."""
        return tf.data.Dataset.from_tensor_slices(pieces).flat_map(_as_it_is(self._piece))

    def _piece(self, piece: _Pieces) -> Dataset:
        block = _Blocks(*(tf.gather(each, piece.block) for each in self.table.blocks))
        name, compression, size = (tf.gather(each, block.file) for each in self.table[1:])
        if self.index.format == "tfrecord":
            records = checksums.tfrecords(name, compression, block.offset)
        elif any(file.compression for file in self.index.files if file.records):
            records = tf.data.TextLineDataset(name, compression)
        else:
            records = _lines(name, block, size)
        return records.skip(piece.skip).take(piece.take)


def _lines(name: Tensor, block: _Blocks, size: Tensor) -> Dataset:
    """Lines without their ends, as TextLineDataset gives them."""
    rest = size - block.offset - block.bytes
    block_bytes = tf.data.FixedLengthRecordDataset(name, block.bytes, block.offset, rest, checksums.READ_BUFFER)

    def split(text: Tensor) -> Dataset:
        lines = tf.strings.split(tf.strings.regex_replace(text, "\r\n", "\n"), "\n")
        return tf.data.Dataset.from_tensor_slices(lines)

    return block_bytes.flat_map(_as_it_is(split))


@dataclass(frozen=True)
class _Plan:
    """The windows of an epoch for one part."""

    records: Records
    part: Part
    steps: int
    """Steps of an epoch."""
    window: int
    """Steps of a window."""

    def batches(self) -> Dataset:
        epochs = tf.data.Dataset.range(self.part.start // self.steps, _INT64_MAX)
        if isinstance(self.part.index, tf.Tensor):
            epochs = self.records.compared().flat_map(_as_it_is(lambda _: epochs))
        windows = epochs.flat_map(_as_it_is(self._epoch)).map(_as_it_is(self._read), num_parallel_calls=1)
        batches = windows.prefetch(1).flat_map(_as_it_is(self._batches))
        examples = self.records.examples(self.part.batch)
        parsed = batches.map(examples, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return parsed.prefetch(tf.data.AUTOTUNE).with_options(_options())

    @property
    def _lanes(self) -> int:
        """Examples of this part in a step."""
        return self.part.batch * self.part.local

    def _epoch(self, epoch: Tensor) -> Dataset:
        """The windows of an epoch, from that of the first step on."""
        blocks = self.records.table.blocks
        order = tf.range(blocks.count.shape[0], dtype=tf.int64)
        if self.records.shuffle:
            order = tf.random.experimental.stateless_shuffle(order, seed=self._seed(epoch))
        ends = tf.cumsum(tf.gather(blocks.count, order))
        first, last = self.part.start % self.steps // self.window, -(-self.steps // self.window)
        begin = tf.where(epoch == self.part.start // self.steps, tf.cast(first, tf.int64), tf.constant(0, tf.int64))
        spared = self._spared(epoch)

        def planned(window: Tensor) -> tuple[Tensor, ...]:
            steps = tf.minimum(tf.constant(self.window, tf.int64), self.steps - window * self.window)
            begin, end = (each + spared for each in self._range(window, steps))
            at = tf.searchsorted(ends, tf.stack([begin, end - 1]), side="right", out_type=tf.int64)
            chosen = order[at[0] : at[1] + 1]
            counts, last = tf.gather(blocks.count, chosen), ends[at[0] : at[1] + 1]
            skip = tf.maximum(begin - (last - counts), 0)
            return _Pieces(chosen, skip, tf.minimum(end, last) - (last - counts) - skip), epoch, window, steps

        return tf.data.Dataset.range(begin, last).map(_as_it_is(planned))

    def _spared(self, epoch: Tensor) -> Tensor:
        """The number of records that the epoch leaves out at its beginning, of those that fill no step.

        If all were left out at its end, the last records of a small file, which is one block, would never be read.
        """
        if not self.records.shuffle:
            return tf.constant(0, tf.int64)
        seed = tf.random.experimental.stateless_fold_in(self._seed(epoch), -1)
        room = self.steps * self.part.per_step
        return tf.random.stateless_uniform([], seed, 0, self.records.index.count - room + 1, tf.int64, alg="philox")

    def _range(self, window: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """The records, in the order of the epoch and from its first on, that this part reads for a window."""
        begin = window * (self.window * self.part.per_step)
        if not self.records.shuffle:
            return begin, begin + steps * self.part.per_step
        mine = tf.cast(self.part.index, tf.int64) * self._lanes
        return begin + mine * steps, begin + (mine + self._lanes) * steps

    def _read(self, pieces: _Pieces, epoch: Tensor, window: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """The records of a window, and for each batch the numbers of its own."""
        count = tf.reduce_sum(pieces.take)
        if self.records.rows is None:
            read = self.records.read(pieces).batch(count).get_single_element()
        else:
            read = self.records.rows.read(*pieces)
        order = self._shuffled(epoch, window, steps) if self.records.shuffle else self._in_order(steps)
        at = self.part.start - (epoch * self.steps + window * self.window)
        return read, tf.reshape(order[tf.maximum(at, 0) :], [-1, self.part.batch])

    def _shuffled(self, epoch: Tensor, window: Tensor, steps: Tensor) -> Tensor:
        seed = tf.random.experimental.stateless_fold_in(self._seed(epoch), window)
        keys = tf.random.stateless_uniform(tf.stack([self.part.per_step, steps]), seed, alg="philox")
        index = tf.cast(self.part.index, tf.int64) * self._lanes
        mine = tf.argsort(keys[index : index + self._lanes], axis=1)
        lanes = tf.range(self._lanes, dtype=tf.int64)[:, None] * steps
        return tf.transpose(tf.cast(mine, tf.int64) + lanes)

    def _in_order(self, steps: Tensor) -> Tensor:
        order = tf.reshape(tf.range(steps * self.part.per_step), [steps, self.part.per_step])
        index = tf.cast(self.part.index, tf.int64) * self._lanes
        return order[:, index : index + self._lanes]

    def _batches(self, records: Tensor, order: Tensor) -> Dataset:
        def batch(row: Tensor) -> Tensor:
            return tf.nest.map_structure(lambda each: tf.gather(each, row), records)

        return tf.data.Dataset.from_tensor_slices(order).map(_as_it_is(batch))

    def _seed(self, epoch: Tensor) -> Tensor:
        return tf.stack([tf.constant(self.part.seed, tf.int64), epoch])
