"""A tf.data.Dataset whose elements are shared out to the ranks that there are, by their count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from farandole.elastic import Batches
from farandole.plugin.elastic import ElasticLoader


class Dataset(ElasticLoader):
    """Batches of a `tf.data.Dataset`, which after a change of the ranks are those that are left of the pass.

    A loop over it records a batch when it gets it: call `state.commit()` after the step of the batch, and before the
    loop takes the next one. Give it to the state. For `model.fit`, take `batches()` and the UpdateDataCallback, and one
    pass at a time.

    All ranks have as many batches, and none is empty: the elements that are left for the last step are shared out
    evenly. Where fewer are left than there are ranks, all ranks take the same ones (`is_common`), so that their average
    gradient is that of one step. See `farandole.elastic.Batches`.

    Example:
        >>> data = hvd.elastic.Dataset(tf.data.Dataset.range(10), batch_size=3, shuffle=True, seed=1)
        >>> state = hvd.elastic.ObjectState(data=data, epoch=0)
        >>> data.set_epoch(state.epoch)
        >>> seen = []
        >>> for batch in data:
        ...     seen += batch.numpy().tolist()
        ...     state.commit()
        >>> sorted(sum(hvd.allgather_object(seen), []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        dataset: tf.data.Dataset[Any],
        batch_size: int = 1,
        shuffle: bool | int = False,
        seed: int = 0,
        drop_last: bool = False,
        length: int | None = None,
        transform: Callable[[tf.data.Dataset[Any]], tf.data.Dataset[Any]] | None = None,
    ) -> None:
        """Share out the elements of `dataset`, which gives the same ones in the same order on all ranks, each time.

        Args:
            dataset: of single samples, without batch, repeat and shuffle. Each rank reads it from its first element on,
                so leave what takes long, such as decoding, to `transform`.
            batch_size: samples of each rank in a step.
            shuffle: another order in each pass, by `seed` and the number of the pass: by a buffer of so many elements,
                or of all of them with True.
            seed: the same on all ranks.
            drop_last: leave out the samples that do not make a whole batch for each rank. The shape is static then.
            length: how many elements there are, where `dataset.cardinality()` does not say it.
            transform: makes another dataset of that of the batches, with one element for each, say by `map`.

        Raises:
            ValueError: the number of elements is not known, or infinite.
        """
        if not tf.executing_eagerly():
            raise ValueError("an elastic Dataset is made and read outside of graphs: enable eager execution")
        size = _length(dataset, length)
        self._dataset, self._transform = dataset, transform
        self._buffer_size, self._seed = int(size if shuffle is True else shuffle), seed
        self._loop: Any = None
        self._batches = Batches(range(size), batch_size, False, seed, drop_last)

    def __iter__(self) -> Iterator[Any]:
        """The batches of what is left of the pass; of the next pass, where a loop has ended this one."""
        made = self.batches()
        given: Iterator[Any] = self._loop.given(made)
        return given

    def batches(self) -> tf.data.Dataset[Any]:
        """A `tf.data.Dataset` of what is left of the pass, for one loop, of which `record` says how far it is."""
        loop = self._loop = self._batches.begin()
        whole, short, _, end = loop.steps.bounds
        size, ranks, rank = self._batches.batch_size, loop.steps.ranks, loop.rank
        left = self._ordered().skip(loop.begin).take(end)
        if short > whole:
            made = _cut(left.shard(ranks, rank), size, whole // ranks, short // ranks)
        else:
            mine = _of_rank(left, ranks, rank, loop.steps.bounds[2])
            made = mine.batch(size, drop_remainder=self._batches.drop_last)
        made = made.prefetch(tf.data.AUTOTUNE) if self._transform is None else self._transform(made)
        return made.apply(tf.data.experimental.assert_cardinality(len(loop)))

    def record(self, count: int) -> None:
        """Say that the first `count` of the `batches()` are done.

        Raises:
            ValueError: there are fewer, there are other ranks since, or no batches were asked for.
        """
        self._begun().record(count)

    def end(self) -> None:
        """Say that the loop over `batches()` is over: where all are done, the next one begins the next pass."""
        self._begun().end()

    def _begun(self) -> Any:
        if self._loop is None:
            raise ValueError("no batches() of this dataset were asked for: give them to model.fit")
        return self._loop

    def _ordered(self) -> Any:
        if not self._buffer_size:
            return self._dataset
        seed = self._seed + self.epoch
        return self._dataset.shuffle(self._buffer_size, seed=seed, reshuffle_each_iteration=False)


def _length(dataset: Any, length: int | None) -> int:
    known = int(dataset.cardinality())
    if known == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the dataset has no end, so there is no pass to share out: leave out its repeat()")
    if known == tf.data.UNKNOWN_CARDINALITY:
        if length is None:
            raise ValueError(
                "the dataset does not know how many elements it has: say it with length=, the same on all ranks"
            )
        return length
    if length not in (None, known):
        raise ValueError(f"length={length} is given for a dataset of {known} elements: leave it out")
    return known


def _of_rank(left: Any, ranks: int, rank: int, even: int) -> Any:
    """This rank's elements of the first `even` ones, and all the others."""
    if ranks == 1 or even == 0:
        return left
    if int(left.cardinality()) == even:
        return left.shard(ranks, rank)
    mine = left.enumerate().filter(lambda number, *_: (number >= even) | (number % ranks == rank))
    return mine.map(_second)


def _cut(mine: Any, size: int, whole: int, short: int) -> Any:
    """Batches of `size` of the first `whole` elements, one of those until `short`, and one of the others."""
    return mine.enumerate().group_by_window(
        lambda number, *_: tf.cast(number >= whole, tf.int64) + tf.cast(number >= short, tf.int64),
        lambda _, window: window.map(_second).batch(size),
        window_size_func=lambda key: tf.where(key == 1, tf.constant(short - whole, tf.int64), size),
    )


def _second(_: Any, element: Any) -> Any:
    return element
