"""Every operation in C is held to its plain form: values, gradients, replicas, layouts, awkward sizes, precision.

tests/support/operation_tables.py has a table for each, and tables_by_hand.py for those that no declaration fits. One
test checks all cases of a table; a failure names its case.
"""

import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from chomsky_ladder.models.base import MODELS
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_library import FILES
from chomsky_ladder.models.operations.in_c import Loops
from support.layers import as_good_in_single, close, gradients, kept_for_backward
from support.operation_tables import REPLICAS, Case, Table, cases_of, drawn, flat, forms
from support.operation_tables import TABLES as DECLARED
from support.tables_by_hand import BY_HAND

TABLES = (*DECLARED, *BY_HAND)

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.each_time(len(TABLES)),  # a case is an operation
]


def every(has: Callable[[Table], object] = lambda table: True) -> pytest.MarkDecorator:
    """Parametrise a test with the tables that have something."""
    return pytest.mark.parametrize("table", [table for table in TABLES if has(table)], ids=lambda table: table.kernel)


each = every()


@contextmanager
def case_named(case: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"the case: {case}")
        raise


def agree(table: Table, case: Case) -> None:
    given = drawn(table, case)
    with case_named(case):
        found, expected = (form(*given) for form in forms(table, case))
        close(found, expected, 1e-9)
        for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
            close(one, other, 1e-8)


@each
def test_values_and_gradients(table: Table) -> None:
    for case in cases_of(table):
        agree(table, case)


@each
def test_gradients_of_one_output_alone(table: Table) -> None:
    for part in range(len(flat(table.calls[0](table.operation.reference, *drawn(table))))):
        agree(table, Case(part=part))


@each
@pytest.mark.parametrize("share", [False, True])
def test_replicas_under_vmap(table: Table, share: bool) -> None:
    """Each gives what it gives alone, gradients too, where they lie apart and where they share the last input."""
    names = [*table.axes]
    shared = {*table.shared.split(), *(names[-1:] if share else [])}
    for call in range(len(table.calls)):
        case = Case({"L": 7}, call=call)
        native, plain = forms(table, case)
        many = [[x.detach() for x in drawn(table, case, seed=seed)] for seed in range(REPLICAS)]
        apart = [None if name in shared else (i if share else 0) % many[0][i].ndim for i, name in enumerate(names)]
        given = [
            (x[0] if place is None else torch.stack(x).movedim(0, place)).requires_grad_()
            for place, x in zip(apart, zip(*many, strict=True), strict=True)
        ]
        together = torch.vmap(native, in_dims=tuple(apart))(*given)
        alone = [
            [x if place is None else x.select(place, r) for x, place in zip(given, apart, strict=True)]
            for r in range(REPLICAS)
        ]
        expected = torch.stack([plain(*x) for x in alone])
        with case_named(case):
            close(together, expected, 1e-9)
            for one, other in zip(gradients(together, given), gradients(expected, given), strict=True):
                close(one, other, 1e-8)


@each
def test_without_a_gradient_no_bit_is_another_and_nothing_is_kept(table: Table) -> None:
    native, _ = forms(table)
    given = drawn(table)
    found = native(*given)
    with torch.no_grad():
        assert torch.equal(native(*given), found) and kept_for_backward(lambda: native(*given)) == 0


@each
@pytest.mark.each_time(10)  # strings of 300 tokens, three times
def test_single_precision_is_as_good_as_that_of_the_plain_form(table: Table) -> None:
    case = Case({"L": 300, "B": 4} | dict.fromkeys(table.widths, 16))
    given = [x.detach() for x in drawn(table, case, draws=table.slow)]
    as_good_in_single(*forms(table), given, times=table.rounds)


@every(lambda table: table.spreads)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_numbers_that_are_none_spoil_no_more_than_in_the_plain_form(table: Table, wrong: float) -> None:
    """Behind the values of a row nothing times infinity is no number, and must not be added up."""
    for name in table.spreads.split():
        given = [x.detach().float().requires_grad_() for x in drawn(table)]
        with torch.no_grad():
            given[[*table.axes].index(name)][0, 1].flatten()[0] = wrong
        outputs = [form(*given) for form in forms(table)]
        results = [(x, *gradients(x, given)) for x in outputs]
        for one, other in zip(*results, strict=True):
            assert torch.equal(one.isfinite(), other.isfinite())


@every(lambda table: "B" in table.axes[next(iter(table.axes))])
def test_no_number_stays_in_its_string(table: Table) -> None:
    given = [x.detach() for x in drawn(table)]
    whole = flat(table.calls[0](named(table.kernel).call, *given))
    given[0][1] = torch.nan
    for one, other in zip(flat(table.calls[0](named(table.kernel).call, *given)), whole, strict=True):
        assert torch.equal(one[0], other[0])


def has_tokens(table: Table) -> bool:
    return any("L" in axes for axes in table.axes.values())


@every(has_tokens)
def test_the_future_gives_and_gets_nothing_at_all(table: Table) -> None:
    """Not a number too small to be normal either, with which some processors take fifty times as long."""
    given = [x.detach().float().requires_grad_() for x in drawn(table)]
    places = {i: axes.index("L") for i, axes in enumerate(table.axes.values()) if "L" in axes}
    y = flat(table.calls[0](named(table.kernel).call, *given))[0]
    found = torch.autograd.grad(y.select(places[0], 3).square().sum(), given, materialize_grads=True)
    assert all((found[i].narrow(place, 4, 5) == 0).all() for i, place in places.items())


@every(lambda table: has_tokens(table) and not table.squares)
def test_memory_is_linear_in_the_length(table: Table) -> None:
    native, _ = forms(table)
    many = [drawn(table, Case({"L": length})) for length in (192, 384, 768)]
    kept = [kept_for_backward(lambda given=given: native(*given)) for given in many]
    assert kept[2] - kept[1] == 2 * (kept[1] - kept[0])


@every(lambda table: table.carries)
def test_a_string_in_pieces(table: Table) -> None:
    """From the state behind one piece the next is what it is in the whole."""
    names, states = [*table.axes], table.carries.split()
    given = [x.detach() for x in drawn(table, Case({"L": 20}))]
    whole, parts = flat(table.calls[0](named(table.kernel).call, *given)), []
    places = {i: axes.index("L") for i, axes in enumerate(table.axes.values()) if "L" in axes}
    for start, stop in ((0, 1), (1, 14), (14, 20)):
        piece = [x.narrow(places[i], start, stop - start) if i in places else x for i, x in enumerate(given)]
        y, *last = flat(table.calls[0](named(table.kernel).call, *piece))
        for name, state in zip(states, last, strict=True):
            given[names.index(name)] = state
        parts.append(y)
    time = next(iter(places.values()))
    close(torch.cat(parts, time), whole[0], 1e-10)
    for one, other in zip(last, whole[1:], strict=True):
        close(one, other, 1e-10)


@every(lambda table: table.forgets)
def test_it_forgets_all_and_exactly(table: Table) -> None:
    """Behind a token that forgets nothing is left of a state as large as there are."""
    assert table.forgets
    names, (gate, value) = [*table.axes], table.forgets
    given = [x.detach() for x in drawn(table, Case({"L": 12}))]
    place = table.axes[gate].index("L")
    given[names.index(gate)].select(place, 7).fill_(value)
    state, results = names.index(table.carries), []
    for scale in (0.0, 1e99):
        changed = [scale * x if i == state else x for i, x in enumerate(given)]
        y, last = flat(table.calls[0](named(table.kernel).call, *changed))
        results.append((y.narrow(place, 7, 5), last))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@every(lambda table: table.narrow)
def test_inputs_of_16_bits_are_read_in_the_precision_of_the_state(table: Table) -> None:
    """Near 1 a gate in bf16 has next to no digits."""
    given = [x.detach().float() for x in drawn(table, Case({"L": 40}))]
    rounded = [x.bfloat16() if name in table.narrow.split() else x for name, x in zip(table.axes, given, strict=True)]
    native, plain = forms(table)
    close(native(*rounded), plain(*(x.float() for x in rounded)), 1e-5)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="another processor's numbers")
@every(lambda table: table.dying)
def test_gradients_that_die_out_are_nothing_in_the_end(table: Table) -> None:
    """Numbers below the least normal one take a processor far longer: in C, and only there, they are zero."""
    least = torch.finfo(torch.float32).tiny
    case = Case({"B": 1, "L": 200, "K": 3})
    given = [x.detach().float().requires_grad_() for x in drawn(table, case, draws=table.dying)]
    y = flat(table.calls[0](named(table.kernel).call, *given))[0]
    time = next(axes.index("L") for axes in table.axes.values() if "L" in axes)
    found = torch.autograd.grad(y.select(time, -1).sum(), given)[:3]  # as C leaves them
    assert any(x.eq(0).any() and x.ne(0).any() for x in found), "some are alive, some are not"
    for gradient in found:
        assert not ((gradient != 0) & (gradient.abs() < least)).any()
    assert (torch.tensor([least]) / 4).item() > 0, "elsewhere there are such numbers still"


@each
@pytest.mark.parametrize("takes", [True, False])
def test_a_model_calls_it(table: Table, takes: bool) -> None:
    (config,) = (config for config in MODELS if config.name == (table.model or table.operation.serves[0]))
    ctx = Context(backend=table.backend if takes else "reference")
    config.tiny().build(5)(torch.zeros(2, 3, dtype=torch.int64), ctx)
    assert (table.kernel in ctx.backends) == takes


def test_loops_are_declared_with_the_arguments_they_have_in_c() -> None:
    """A pointer too few is no error of Python's, and one in the wrong place writes over what is read."""
    sources = "\n".join(path.read_text("utf-8") for path in FILES.values())
    for loops in Loops.ALL:
        for way, (read, written) in loops.signatures.items():
            declared = re.search(rf"void {loops.name}_{way}\(([^)]*)\)", sources)
            assert declared, f"{loops.name}_{way} is not in the sources"
            *tensors, _ = declared[1].split(",")
            constant = ["const" in tensor for tensor in tensors]
            assert constant == [True] * len(read) + [False] * len(written), f"{loops.name}_{way}: {declared[1]}"
