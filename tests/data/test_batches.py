import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.data.batches import TrainingExamples, collate, in_order
from bertpt.data.example import Example
from bertpt.data.masking import Masking

CLS, SEP, MASK = 2, 3, 4


def example(a, b, positions, seen, label=0):
    ids = np.array([CLS, *a, SEP, *b, SEP])
    return Example(ids, len(a) + 2, label, np.array(positions), np.array(seen))


class Rows:
    """Examples whose first token tells the row."""

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def take(self, rows):
        return [example([100 + int(r), 7, 8], [9], [1], [MASK]) for r in rows]


def masking():
    never_predicted = np.isin(np.arange(200), [0, CLS, SEP, MASK])
    return Masking(never_predicted, np.arange(5, 200), MASK, 0.15)


def test_a_batch_holds_what_was_counted_by_hand():
    batch = collate(
        [example([5, 6], [7], [1, 4], [MASK, 9], 1), example([8], [9, 10, 11], [4], [10], 0)],
        pad_id=0,
    )
    assert batch.input_ids.tolist() == [
        [CLS, MASK, 6, SEP, 9, SEP, 0],
        [CLS, 8, SEP, 9, 10, 11, SEP],
    ]
    assert batch.token_type_ids.tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]]
    assert batch.lengths.tolist() == [6, 7]
    assert batch.masked_positions.tolist() == [1, 4, 11]
    assert batch.masked_lm_labels.tolist() == [5, 7, 10]
    assert batch.next_sentence_labels.tolist() == [1, 0]


def test_an_example_without_a_second_segment_is_all_segment_a():
    alone = Example(np.array([CLS, 5, SEP]), 3, -100, np.array([1]), np.array([MASK]))
    batch = collate([alone], pad_id=0)
    assert batch.token_type_ids.tolist() == [[0, 0, 0]]
    assert batch.next_sentence_labels.tolist() == [-100]


@given(number=st.integers(1, 40), batch_size=st.integers(1, 15), seed=st.integers(0, 9))
def test_an_epoch_visits_every_row_once(number, batch_size, seed):
    training = TrainingExamples(Rows(number), batch_size=batch_size, seed=seed, masking=None)
    for epoch in range(2):
        first = epoch * training.steps_per_epoch
        steps = range(first, first + training.steps_per_epoch)
        sizes = [len(training.rows(step)) for step in steps]
        assert sizes == [batch_size] * (len(sizes) - 1) + [number - batch_size * (len(sizes) - 1)]
        assert sorted(np.concatenate([training.rows(step) for step in steps])) == list(
            range(number)
        )


def test_each_epoch_and_seed_has_its_own_order():
    orders = [
        tuple(TrainingExamples(Rows(50), batch_size=50, seed=seed, masking=None).rows(step))
        for seed in (0, 1)
        for step in (0, 1)
    ]
    assert len(set(orders)) == 4


def test_a_step_does_not_depend_on_the_steps_before_it():
    def make():
        return TrainingExamples(Rows(9), batch_size=4, seed=3, masking=masking())

    through = make()
    walked = [through[step] for step in range(8)]
    for step in (7, 2, 5):
        jumped = make()[step]
        for one, other in zip(walked[step], jumped, strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def test_masks_are_fresh_each_epoch_and_do_not_depend_on_the_batch_size():
    def masks(batch_size, epoch):
        training = TrainingExamples(Rows(30), batch_size=batch_size, seed=0, masking=masking())
        steps = range(epoch * training.steps_per_epoch, (epoch + 1) * training.steps_per_epoch)
        return {
            int(e.input_ids[1]): (*e.masked_positions, *e.masked_input_ids)
            for step in steps
            for e in training[step]
        }

    assert masks(4, 0) == masks(7, 0)
    assert masks(4, 1) == masks(30, 1)
    assert masks(4, 0) != masks(4, 1)


def test_stored_masks_are_kept_on_request():
    training = TrainingExamples(Rows(5), batch_size=5, seed=0, masking=None)
    for step in range(3):
        assert all(e.masked_positions.tolist() == [1] for e in training[step])


@pytest.mark.parametrize(
    ("number", "at_most", "expected"),
    [
        (7, 0, [0, 1, 2, 3, 4, 5, 6]),
        (7, 3, [0, 2, 4]),
        (3, 9, [0, 1, 2]),
        (6, 2, [0, 3]),
        (0, 5, []),
    ],
)
def test_evaluation_takes_all_rows_or_evenly_spaced_ones(number, at_most, expected):
    batches = in_order(Rows(number), batch_size=2, pad_id=0, at_most=at_most)
    found = [int(i) - 100 for batch in batches for i in batch.masked_lm_labels]
    assert found == expected
