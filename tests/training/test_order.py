import numpy as np

from structattn.training.progress import DataOrder


def update_batches(order, epoch, position):
    return order.batches_of(epoch)[position : position + order.gradient_accumulation_steps]


def drawn(order, epochs):
    result = []
    for epoch in range(epochs):
        position = 0
        while part := update_batches(order, epoch, position):
            result.append([batch.tolist() for batch in part])
            position += len(part)
    return result


def test_data_order_depends_only_on_epoch_and_position(tiny_task):
    forwards = drawn(DataOrder(tiny_task(), 2), 3)
    order = DataOrder(tiny_task(), 2)
    assert [batch.tolist() for batch in update_batches(order, 2, 2)] == forwards[2 * order.updates_in_epoch(0) + 1]
    assert drawn(order, 3) == forwards


def test_every_epoch_consumes_every_example_once(tiny_task):
    task = tiny_task()
    order = DataOrder(task, 4)
    for epoch in range(3):
        examples = np.concatenate(order.batches_of(epoch))
        assert sorted(examples) == list(range(len(task.train.sequences)))


def test_epochs_have_different_orders(tiny_task):
    task = tiny_task(size=1)
    assert [batch.tolist() for batch in task.training_batches(0)] != [
        batch.tolist() for batch in task.training_batches(1)
    ]


def test_the_last_update_of_an_epoch_may_be_smaller(tiny_task):
    order = DataOrder(tiny_task(), 4)
    assert len(order.batches_of(0)) == 6  # lengths 2, 3, 5 occur 5, 3, 1 times; two sequences in a batch
    assert order.updates_in_epoch(0) == 2
    assert len(update_batches(order, 0, 4)) == 2
