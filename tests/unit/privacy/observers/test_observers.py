"""What observers of linear systems learn: bounds, against brute force and closed forms."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.reference.observers_slow import Exchanges, allowed, exchanges, mu, mu_of_stretches
from tests.reference.observers_slow import rows as rows_of

from gossamer.errors import SpecError
from gossamer.privacy.observers import states
from gossamer.privacy.observers.sensitivity import EVERY, Draw, Participation, span
from gossamer.privacy.observers.sensitivity import mu as mu_bounds
from gossamer.privacy.observers.system import Book, Combination, LinearSystem, NotLinear, Seen, members_of
from gossamer.vectors import Released, divide_by_roots, square

PATTERNS = (EVERY, Participation(1), Participation(2), Participation(None, 2), Participation(2, 2))


def name(node: int) -> str:
    return f"node-{node}"


def system_of(run: Exchanges, lengths: np.ndarray) -> LinearSystem:
    draws = [Draw(name(owner), float(length)) for owner, length in zip(run.owners, lengths)]
    seen = [Seen(name(i), name(j), row) for i, j, row in run.messages]
    return LinearSystem(draws, seen, {name(i): row for i, row in enumerate(run.models)})


def brute(run: Exchanges, lengths: np.ndarray, members: set[int], pattern: Participation) -> dict[int, float]:
    known = np.isin(run.owners, [*members])
    rows = np.array([np.where(known, 0.0, row) for _, j, row in run.messages if j in members])
    found = {}
    for owner in set(run.owners) - members:
        own = np.flatnonzero(np.array(run.owners) == owner).tolist()
        sets = allowed(len(own), pattern.most, pattern.apart)
        found[owner] = mu(rows.reshape(-1, len(run.owners)), own, lengths[own], sets)
    return found


@pytest.mark.some(40)
@pytest.mark.parametrize("seed", range(200))
def test_brute_force_agrees_to_1e_6(seed):
    generator = np.random.default_rng(seed)
    run = exchanges(generator, nodes=4, draws=12)
    lengths = generator.uniform(0.2, 3.0, 12)
    members = {0} if seed % 2 else {0, 1}
    pattern = PATTERNS[seed % len(PATTERNS)]
    observer = "coalition:" + ",".join(map(name, sorted(members)))
    found = system_of(run, lengths).against(observer, pattern)
    for owner, expected in brute(run, lengths, members, pattern).items():
        bounds = found[name(owner)]
        assert bounds.least - 1e-6 <= expected <= bounds.most + 1e-6
        assert bounds.most == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.some(6)
@pytest.mark.parametrize("seed", range(60))
def test_brute_force_agrees_to_1e_6_where_messages_are_stretches_of_vectors(seed):
    """A change may be spread over entries 0 and 1, 2 to 4 and 5, of each of which the observer has something else."""
    generator = np.random.default_rng(seed)
    run, lengths = exchanges(generator, nodes=3, draws=7), generator.uniform(0.2, 3.0, 7)
    entries = [((0, 2), (2, 5), (0, 5), (2, 6))[one] for one in generator.integers(4, size=len(run.messages))]
    whole = system_of(run, lengths)
    seen = [replace(one, entries=of) for one, of in zip(whole.seen, entries, strict=True)]
    pattern = PATTERNS[seed % len(PATTERNS)]
    found = replace(whole, seen=seen).against("node:node-0", pattern)
    known = np.isin(run.owners, [0])
    each = [
        np.array([np.where(known, 0.0, one.row) for one in seen if one.receiver == name(0) and one.entries in of])
        for of in ({(0, 2), (0, 5)}, {(2, 5), (0, 5), (2, 6)}, {(2, 6)})
    ]
    for owner in {*run.owners} - {0}:
        own = np.flatnonzero(np.array(run.owners) == owner).tolist()
        sets = allowed(len(own), pattern.most, pattern.apart)
        expected = mu_of_stretches([rows.reshape(-1, 7) for rows in each], own, lengths[own], sets)
        assert found[name(owner)].most == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_what_nobody_is_sent_holds_up_no_search():
    """A neighbour's draws, of which each hides a little of those around it, and the last one, which is not sent."""
    apart = np.abs(np.subtract.outer(np.arange(31), np.arange(31)))
    gram = 0.97 * np.eye(31) - 0.005 * 0.7**apart * (apart > 0)
    gram[30] = gram[:, 30] = 0.0
    bounds = mu_bounds(gram[None], EVERY, 1e-6)
    assert bounds.most**2 - bounds.least**2 <= 1e-6 * bounds.least**2 * (1 + 1e-9)
    assert bounds.most == pytest.approx(mu_bounds(gram[None, :30, :30], EVERY, 1e-6).most, rel=1e-6)


def test_stretches_are_joined_to_the_vector_they_were_cut_from():
    """Also where they are written in vectors of different times, as a sum that is finished piece by piece."""
    book = Book(2)
    one, two = (book.drawn(6, np.float64, scale, Draw(name(0), 1.0)) for scale in (1.0, 2.0))
    early = (one[:2] + two[:2]) * 0.5
    third = book.drawn(6, np.float64, 1.0, Draw(name(1), 1.0))
    late = (one[2:] + two[2:]) * 0.5
    assert len(book.blocks) == 1
    assert early.row.tolist() != late.row.tolist()
    assert early.joined([early, late]).entries == (0, 6)
    for parts in ([early, third[2:]], [early, two[2:]], [late, early], [early, late[1:]]):
        with pytest.raises(NotLinear, match="stretches of one vector"):
            parts[0].joined(parts)
    with pytest.raises(NotLinear, match="one system"):
        early + late[:2]


@pytest.fixture
def system():
    generator = np.random.default_rng(3)
    return system_of(exchanges(generator, nodes=5, draws=40), generator.uniform(0.5, 2.0, 40))


def test_more_knowledge_never_lowers_what_is_learnt(system):
    one, two = system.against("node:node-0"), system.against("coalition:node-0,node-1")
    link, more = system.against("link:node-0,node-1"), system.against("link:node-0,node-1+final")
    everyone, all_of_it = system.against("everyone"), system.against("everyone+final")
    for owner in ("node-2", "node-3", "node-4"):
        assert one[owner].least <= two[owner].most
        assert link[owner].least <= min(more[owner].most, everyone[owner].most)
        assert everyone[owner].least <= all_of_it[owner].most


def test_what_a_node_keeps_to_itself_is_on_no_link(system):
    """As releases are, in the systems of audits."""
    kept = [*system.seen, Seen("node-0", "node-0", np.ones(40), inside=True)]
    assert len(replace(system, seen=kept).seen_by("link:node-0,node-1")) == len(system.seen_by("link:node-0,node-1"))
    assert len(replace(system, seen=kept).seen_by("node:node-0")) == len(system.seen_by("node:node-0")) + 1


def test_everyone_learns_no_more_than_plain_composition(system):
    found = system.against("everyone+final")
    for owner in {draw.owner for draw in system.draws}:
        composed = math.sqrt(sum(draw.moved**2 for draw in system.draws if draw.owner == owner))
        assert found[owner].most <= composed * (1 + 1e-9)


def test_noise_that_is_added_never_raises_what_is_learnt(system):
    quieter = LinearSystem([Draw(draw.owner, draw.moved / 2) for draw in system.draws], system.seen, system.final)
    for owner, bounds in quieter.against("node:node-0").items():
        assert bounds.most <= system.against("node:node-0")[owner].most * (1 + 1e-9)


def test_what_has_no_noise_is_infinite_and_what_cancels_is_not():
    draws = [Draw("a", 1.0, noisy=False), Draw("a", 0.0), Draw("b", 1.0)]
    raw, hidden = np.array([1.0]), np.array([1.0, 2.0])
    seen = [Seen("a", "b", hidden), Seen("a", "c", raw)]
    system = LinearSystem(draws, seen, {"a": raw, "b": raw, "c": raw})
    assert system.against("node:c")["a"].most == math.inf
    assert system.against("node:b")["a"].most == pytest.approx(0.5)  # one gradient of length 1 under noise of 2


def test_what_rounding_leaves_unclear_is_no_smaller_than_it_is():
    """Node 0 hears both neighbours on a ring of 101 after each average of 60, with one draw a node at the start.

    What comes from 1 + t for the first time at step t has 3^-t in it, and so from the other side: in exact numbers the
    messages are of full rank, and node 0 knows all gradients with their noise. To rounding, the far half is missing.
    """
    nodes, models, seen = 101, np.eye(101), []
    for _ in range(60):
        seen += [Seen(name(other), name(0), models[other]) for other in (1, nodes - 1)]
        models = (models + np.roll(models, 1, axis=0) + np.roll(models, -1, axis=0)) / 3
    draws = [Draw(name(owner), 1.0) for owner in range(nodes)]
    for bounds in (
        LinearSystem(draws, seen, dict.fromkeys(map(name, range(nodes)), np.zeros(0))).against("node:node-0").values()
    ):
        assert bounds.most >= 1.0 >= bounds.least


def test_a_combination_is_linear_or_refused():
    one = Released(Combination(3, np.float32, np.array([1.0, 2.0])))
    two = Released(Combination(3, np.float32, np.array([0.5, 0.0, 4.0])))
    assert (one * 2.0 - two).values.row.tolist() == [1.5, 4.0, -4.0]
    assert (two - one / 2.0).values.row.tolist() == [0.0, -1.0, 4.0]
    for wrong in (lambda: square(one), lambda: divide_by_roots(one, two, 1.0), lambda: one[::2]):
        with pytest.raises(NotLinear):
            wrong()
    with pytest.raises(NotLinear, match="one system"):
        one + Released(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("observer", "said"),
    [
        ("node:nobody", "no node 'nobody'"),
        ("node:", "found 'node:'"),
        ("somebody", "found 'somebody'"),
        ("link:node-0", "found 'link:node-0'"),
        ("coalition:node-0,node-0", "found 'coalition"),
    ],
)
def test_an_observer_that_is_none_is_refused(system, observer, said):
    with pytest.raises(SpecError, match=said):
        system.against(observer)
    with pytest.raises(SpecError, match="most"):
        Participation(0)


def booked(seed: int) -> tuple[LinearSystem, np.ndarray, np.ndarray]:
    """Make a run of 5 nodes in blocks of 6 draws, and its messages and models in all draws at once.

    Sometimes an old vector is sent again, also from a block that is long over.
    """
    generator, book = np.random.default_rng(seed), Book(6)
    zero = Combination(1, np.float64, np.zeros(0), book)
    models, dense = [zero] * 5, np.zeros((5, 40))
    seen, rows, kept = [], [], []
    for number in range(40):
        i, j, k = generator.permutation(5)[:3].tolist()
        scale = float(generator.uniform(0.5, 2.0))
        models[i] = models[i] - book.drawn(1, np.float64, scale, Draw(name(i), 1.0))
        dense[i, number] -= scale
        if generator.random() < 0.7:
            for sender, receiver in ((i, j), (j, i)):
                seen.append(Seen(name(sender), name(receiver), models[sender].row, False, len(book.blocks)))
                rows.append(dense[sender].copy())
                kept.append((sender, models[sender], rows[-1]))
            models[i] = models[j] = (models[i] + models[j]) * 0.5
            dense[[i, j]] = (dense[i] + dense[j]) / 2
        if kept and generator.random() < 0.3:
            sender, old, row = kept[int(generator.integers(len(kept)))]
            seen.append(Seen(name(sender), name(k), old.row, False, len(book.blocks)))
            rows.append(row)
    final = {name(node): models[node].row for node in range(5)}
    return LinearSystem(book.draws, seen, final, book.blocks), np.array(rows), dense


@pytest.mark.some(10)
@pytest.mark.parametrize("seed", range(60))
def test_blocks_of_time_know_what_all_messages_at_once_do(seed, monkeypatch):
    """P of each party, from a pseudo-inverse of all messages, and all coefficients, however many blocks go together."""
    monkeypatch.setattr(states, "_TOGETHER", (1, 15, 40)[seed % 3])
    system, rows, models = booked(seed)
    assert len(system.blocks) == 6
    assert np.allclose(rows_of(system, [(one.block, one.row) for one in system.seen]), rows, rtol=0, atol=1e-12)
    assert np.allclose(rows_of(system, [(6, row) for row in system.final.values()]), models, rtol=0, atol=1e-12)
    places = {name(node): [n for n, draw in enumerate(system.draws) if draw.owner == name(node)] for node in range(5)}
    for observer in ("node:node-0", "coalition:node-1,node-2", "link:node-3,node-4+final", "everyone"):
        agrees(system, observer, places)
        assert system.against(observer)[name(4)].most <= len(places[name(4)]) ** 0.5 * (1 + 1e-9)


def agrees(system: LinearSystem, observer: str, places: dict[str, list[int]]) -> None:
    """Hold P of each party against that of a pseudo-inverse of all messages at once."""
    members = members_of(observer, system.final)
    own = np.array([draw.owner in members for draw in system.draws])
    found = system.seen_by(observer)
    known = rows_of(system, found)
    known[:, own] = 0.0
    expected = known.T @ np.linalg.pinv(known @ known.T, rcond=1e-12, hermitian=True) @ known
    parts = system.parts(found, own, places)
    for party, of in places.items():
        assert np.allclose(parts[party], expected[np.ix_(of, of)], rtol=0, atol=1e-9)


@pytest.mark.parametrize("together", [1, 48])
@pytest.mark.parametrize("odd", [None, 1, 30])
def test_rounds_that_repeat_are_looked_at_once_and_told_as_they_are(odd, together, monkeypatch):
    """Round after round of a ring is the same, but where one message more is sent."""
    looked = []
    monkeypatch.setattr(states, "_TOGETHER", together)
    monkeypatch.setattr(states, "span", lambda *given: looked.append(given) or span(*given))
    book = Book(6)
    models, seen = [Combination(1, np.float64, np.zeros(0), book)] * 6, []
    for round_ in range(100):
        models = [model - book.drawn(1, np.float64, 1.0, Draw(name(i), 1.0)) for i, model in enumerate(models)]
        for i, model in enumerate(models):
            to = {(i + 1) % 6, (i - 1) % 6} | ({0} if (round_, i) == (odd, 3) else set())
            seen += [Seen(name(i), name(j), model.row, False, len(book.blocks)) for j in to]
        models = [models[i].mixed([models[i - 1], models[(i + 1) % 6]], [0.25, 0.375]) for i in range(6)]
    system = LinearSystem(book.draws, seen, {name(i): one.row for i, one in enumerate(models)}, book.blocks)
    places = {name(node): list(range(node, 600, 6)) for node in range(6)}
    for observer in ("node:node-0", "coalition:node-1,node-2", "everyone"):
        looked.clear()
        agrees(system, observer, places)
        assert len(looked) < 90


@pytest.mark.some(6)
@pytest.mark.parametrize("seed", range(40))
def test_in_blocks_more_knowledge_never_lowers_and_noise_never_raises_what_is_learnt(seed):
    """Also where every observer is accounted for by blocks, and everyone with all models learns all there is."""
    system = booked(seed)[0]
    quieter = replace(system, draws=[replace(draw, moved=0.5) for draw in system.draws])
    more = ("node:node-0", "coalition:node-0,node-1", "coalition:node-0,node-1+link:node-2,node-3")
    few, some, many = (system.against(observer) for observer in more)
    final, everyone, all_of_it = (system.against(one) for one in ("final", "everyone", "everyone+final"))
    for party in ("node-3", "node-4"):
        updates = sum(draw.owner == party for draw in system.draws)
        assert few[party].least <= some[party].most <= many[party].most * (1 + 1e-6)
        assert max(final[party].least, everyone[party].least) <= all_of_it[party].most <= updates**0.5 * (1 + 1e-9)
        assert quieter.against(more[0])[party].most == pytest.approx(few[party].most / 2, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_are_independent_are_as_many_as_what_is_known_of_all_draws(seed):
    """The sum of P_kk over all draws is the rank of R: what letting all gradients move cannot get below."""
    system, rows, _ = booked(seed)
    everyone = {"all": list(range(len(system.draws)))}
    known = system.parts(system.seen_by("everyone"), np.zeros(len(system.draws), bool), everyone)["all"]
    assert np.trace(known) == pytest.approx(np.linalg.matrix_rank(rows, tol=1e-9))


def test_what_leaks_little_by_little_is_told_to_the_last_bit_of_what_rounds_before_it_know():
    """Each round x becomes a x - draw, and w x is sent behind a draw of another; all at once, by least squares."""
    rounds, keeps, weight = 500, 0.99, 2e-9
    first = 1 / math.sqrt(1 - keeps * keeps)  # as long as x is in the end, so that its size is the same all along
    book = Book(2)
    nothing = Combination(1, np.float64, np.zeros(0), book)
    x, seen = nothing, []
    for t in range(rounds):
        x = x * keeps - book.drawn(1, np.float64, first if t == 0 else 1.0, Draw(name(1), 1.0))
        masked = nothing - book.drawn(1, np.float64, 1.0, Draw(name(0), 1.0)) + x * weight
        seen.append(Seen(name(0), name(2), masked.row, False, len(book.blocks)))
        del masked
    final = {name(0): np.zeros(0), name(1): x.row, name(2): np.zeros(0)}
    found = LinearSystem(book.draws, seen, final, book.blocks).against("node:node-2")[name(1)]
    t = np.arange(rounds)
    sent = weight * np.where(t[:, None] >= t, keeps ** np.maximum(t[:, None] - t, 0), 0.0)
    sent[:, 0] *= first
    seen_of = sent.T @ np.linalg.solve(np.eye(rounds) + sent @ sent.T, sent)
    assert found.most >= math.sqrt(seen_of.sum()) > 3e-6


def test_what_rounding_hid_beside_something_large_is_told_once_that_has_faded():
    """A model that fades from 1 by a tenth a round is sent with a thousandth of draws of a billionth: all are known."""
    book, rounds, seen = Book(1), 300, []
    nothing = Combination(1, np.float64, np.zeros(0), book)
    fading = nothing - book.drawn(1, np.float64, 1.0, Draw(name(0), 1.0))
    seen.append(Seen(name(0), name(2), fading.row, False, len(book.blocks)))
    for _ in range(rounds):
        fading = fading * 0.9
        draw = nothing - book.drawn(1, np.float64, 1e-9, Draw(name(1), 1.0))
        sent = fading + draw * 1e-3
        seen.append(Seen(name(0), name(2), sent.row, False, len(book.blocks)))
        del draw, sent
    final = {name(0): fading.row, name(1): np.zeros(0), name(2): np.zeros(0)}
    found = LinearSystem(book.draws, seen, final, book.blocks).against("node:node-2")
    assert found[name(1)].most >= rounds**0.5 * (1 - 1e-9)


def test_where_nobody_has_a_draw_nobody_learns_anything():
    still = {name(0): np.zeros(0), name(1): np.zeros(0)}
    assert LinearSystem([], [], still).against("node:node-1") == {}


def in_blocks_of_two(coefficients: list[float]) -> tuple[Book, list[Combination]]:
    """Make a draw a node, with these coefficients, in blocks of two, and have all observers accounted for by blocks."""
    book = Book(2)
    return book, [book.drawn(1, np.float64, one, Draw(name(i), 1.0)) for i, one in enumerate(coefficients)]


def seen_last(book: Book, models: list[Combination], *vectors: Combination) -> LinearSystem:
    seen = [Seen(name(0), "observer", one.row, False, len(book.blocks)) for one in vectors]
    return LinearSystem(book.draws, seen, {name(i): one.row for i, one in enumerate(models)}, book.blocks)


@pytest.mark.parametrize("longest", [1.0, 1e6, 1e15, 1e30])
def test_a_vector_far_longer_than_others_hides_none_of_them(longest):
    """The observer is sent a draw of length 1 after its block, and has nothing of the longest."""
    book, models = in_blocks_of_two([longest, 1.0, 1.0])
    found = seen_last(book, models, models[1]).against("everyone")
    assert found[name(1)].most == pytest.approx(1.0)
    assert found[name(0)].most == found[name(2)].most == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("little", [1e-3, 1e-7, 1e-9])
def test_a_message_that_is_what_little_two_vectors_differ_by_tells_of_that(little):
    book, models = in_blocks_of_two([1.0, little])
    models[1] = models[1] + models[0]
    models.append(book.drawn(1, np.float64, 1.0, Draw(name(2), 1.0)))
    found = seen_last(book, models, models[1] - models[0]).against("everyone")
    assert found[name(1)].most >= 1.0
    assert found[name(0)].most <= 1e-9 or little < 1e-6


def test_a_vector_of_zeros_that_is_older_than_its_block_tells_nothing():
    book = Book(4)
    none = book.drawn(1, np.float64, 1.0, Draw(name(0), 1.0)) * 0.0
    for _ in range(3):
        none = none + book.drawn(1, np.float64, 1.0, Draw(name(0), 1.0)) * 0.0
    last = book.drawn(1, np.float64, 1.0, Draw(name(1), 1.0))
    assert [len(none.row), len(last.row)] == [4, 1]
    found = LinearSystem(book.draws, [], {name(0): none.row, name(1): last.row}, book.blocks).against("final")
    assert found[name(0)].most == pytest.approx(0.0, abs=1e-9)
    assert found[name(1)].most == pytest.approx(1.0)
